"""What mkdocs cannot do by itself: pages of the repository that are not in docs/, and links between the two.

README, CHANGELOG and their neighbours stay where readers of the repository look for them. Their text becomes pages of the site, and every
relative link is rewritten to the page that shows its target. A link to a file that no page shows keeps its text alone.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
STYLE: Final = ROOT / "tablecrypt" / "maintenance" / "report" / "style.css"
PAGES: Final = {
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "examples/first_table.ipynb": "start/notebook.md",
    "examples/query_engines.py": "examples/query-engines.md",
    "examples/spark_first_table.py": "examples/spark-first-table.md",
    "examples/spark_pipeline.py": "examples/spark-pipeline.md",
    "docs/adr": "adr/index.md",
}
REPOSITORY_PATHS: Final = {page: path for path, page in PAGES.items()}
# Who searches for a task finds its page before the functions that do it.
BOOSTS: Final = {"start/": 4, "how-to/": 4, "reference/api/": 0.5, "adr/": 0.5, "project/": 0.25, "compliance.md": 0.25}
LINK: Final = re.compile(r"(?P<text>!?\[[^\]\n]*\])\((?P<target>[^)\s]+)\)")
FENCE: Final = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file of PAGES, and the colours and the type of an audit's page."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=_content(ROOT / path)))
    files.append(File.generated(config, "stylesheets/colours.css", content=_colours(STYLE.read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Let every relative link outside of code lead to a page of the site."""
    shown = page.file.src_uri
    page.meta["search"] = {"boost": next((boost for start, boost in BOOSTS.items() if shown.startswith(start)), 1)}
    source = REPOSITORY_PATHS.get(shown, f"docs/{shown}")
    folder = source if source == "docs/adr" else posixpath.dirname(source)
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _relinked(link, folder, shown, files), part) for part in parts[::2]]
    return "".join(parts)


def _colours(style: str) -> str:
    """What an audit's page declares for light and for dark, for the theme's two schemes."""
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    return f'[data-md-color-scheme="default"] {{{light}}}\n[data-md-color-scheme="slate"] {{{light}{dark.replace("light dark", "dark")}}}\n'


def _content(path: Path) -> str:
    if path.is_dir():
        decisions = sorted(path.glob("*.md"))
        return "# Decisions\n\n" + "\n".join(f"- [{_title(each)}]({each.name})" for each in decisions)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return _notebook(json.loads(text))
    if path.suffix == ".py":
        return f"# {path.name}\n\n```python\n{text}```\n"
    return text


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _notebook(notebook: dict[str, Any]) -> str:
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [f"```text\n{''.join(output['text']).rstrip()}\n```" for output in cell["outputs"]]
    return "\n\n".join(parts)


def _relinked(link: re.Match[str], folder: str, shown: str, files: Files) -> str:
    target, _, anchor = link["target"].partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    page = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if page is None or files.get_file_from_path(page) is None:
        return link["text"][1:-1]
    relative = posixpath.relpath(page, posixpath.dirname(shown) or ".")
    return f"{link['text']}({relative}{'#' + anchor if anchor else ''})"
