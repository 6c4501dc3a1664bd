"""What came of a case: the words for it, and how an answer is compared with what the manifest expects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.rows import digest, read_rows, same_rows

ROOT: Final = Path("/tmp/iceberg-encryption-conformance")
"""Where the tables of the kit say that they are."""

RIGHT: Final = "right"
REFUSED: Final = "refused"
OTHERWISE: Final = "refused, for another reason"
ACCEPTED: Final = "ACCEPTED"
WRONG: Final = "WRONG ROWS"
NOT_READ: Final = "not read"
TOLERATED: Final = "right rows all the same"
UNSUPPORTED: Final = "not tried"
DIED: Final = "DIED"


@dataclass(frozen=True)
class Verdict:
    """What came of one case."""

    case: dict[str, Any]
    outcome: str
    message: str = ""


def judged(case: dict[str, Any], answer: dict[str, Any], out: Path) -> Verdict:
    """Compare what a reader answered with what the manifest expects."""
    message = answer.get("message", "")
    match case["kind"], answer["result"]:
        case _, "unsupported":
            return Verdict(case, UNSUPPORTED, message)
        case _, "died":
            return Verdict(case, DIED, message)
        case "refuse", "refused":
            return Verdict(case, REFUSED if answer["class"] in case["refusal"] else OTHERWISE, f"{answer['class']}: {message}")
        case _, "files" if "files" not in case or case.get("forged") == "content":
            return Verdict(case, UNSUPPORTED, "it opens lists and manifests alone")
        case "refuse", "files":
            return Verdict(case, TOLERATED if _is_listed(case, answer) else ACCEPTED)
        case "read", "files":
            return Verdict(case, RIGHT if _is_listed(case, answer) else WRONG)
        case "refuse", "rows" if "rows" in case and _is_expected(case, out):
            return Verdict(case, TOLERATED)
        case "refuse", _:
            return Verdict(case, ACCEPTED)
        case "read", "refused":
            return Verdict(case, NOT_READ, f"{answer['class']}: {message}")
    return Verdict(case, RIGHT if _is_expected(case, out) else WRONG)


def _is_listed(case: dict[str, Any], answer: dict[str, Any]) -> bool:
    """What a reader says that opens a table's lists and manifests, and none of its data files."""
    return all(answer[name] == case[name] for name in ("files", "records"))


def _is_expected(case: dict[str, Any], out: Path) -> bool:
    if "rows" in case:
        return same_rows(read_rows(out), read_rows(case["rows"]))
    return digest(out.read_bytes()) == dict(case["plaintext"])


def said(verdict: Verdict) -> str:
    """What the last cause says, in one line, without the place of a file, which differs from case to case."""
    text = (
        re.split(r" \| |Caused by: ", verdict.message)[-1]
        .replace(verdict.case.get("folder", "…"), "…")
        .replace(f"{ROOT}/cases/{verdict.case['id']}", "…")
    )
    short = " ".join(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{12,}", "…", re.sub(r"\.\.\. \d+ more", "", text)).split())[:140]
    return f"`{short.replace('|', '/').replace('`', '')}`" if short else ""
