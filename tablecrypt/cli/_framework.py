"""What commands share: their help, options and arguments, the question before something is destroyed, and runs on several tables."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TextIO, TypeVar

import click

from tablecrypt.cli._output import progress_shown, say, show
from tablecrypt.cli.main import FOUND, INTERRUPTED, REFUSED, TERMINATED, UNREAD
from tablecrypt.cli.settings import Settings, is_glob
from tablecrypt.errors import ConfigurationError
from tablecrypt.external_errors import is_external, said_of
from tablecrypt.printable import counted, one_line, printable
from tablecrypt.setting_kinds import names_near, question

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.maintenance import CatalogResult, ProgressListener

F = TypeVar("F", bound=Callable[..., Any])

BEFORE_COMMAND: Final = ("--catalog", "--property", "-p", "--quiet", "-q", "--progress")
_CODES: Final = {
    0: "success",
    REFUSED: "refused or failed, wrong arguments, or not confirmed; stderr says why",
    INTERRUPTED: "interrupted",
    UNREAD: "nobody read the output to its end",
    TERMINATED: "terminated by SIGTERM",
}


OPENS_NONE: Final = "it opens no catalog and no key service"
"""Why a command takes no catalog."""


class DocumentedCommand(click.Command):
    """A click command with examples, needed permissions and exit codes in its help.

    Args:
        examples: (what it is for, the line to type).
        needs: permissions and other things that must be there.
        codes: exit codes beside those that all commands share, or instead of them.
        takes_no_catalog: why the command makes no use of the options that name a catalog or a key service, for the refusal of them.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[tuple[str, str]] = (),
        needs: str = "",
        codes: Mapping[int, str] | None = None,
        takes_no_catalog: str = "",
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.takes_no_catalog = takes_no_catalog
        self.examples = tuple(examples)
        self.needs = needs
        self.codes = dict(sorted({**_CODES, **(codes or {})}.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what follows the command's name; say of an option that belongs before it that it does."""
        try:
            refuse_repeated(self, ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            if wrong.option_name not in BEFORE_COMMAND:
                raise click.UsageError(f"No such option {wrong.option_name}{self._option_meant(wrong.option_name)}", ctx) from None
            raise click.UsageError(
                f"{wrong.option_name} belongs before the command: tablecrypt {wrong.option_name} … {self.name}", ctx
            ) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. ConfigurationError for a catalog, or properties, of which it makes no use."""
        given = ctx.find_root().params
        # What is not used must not look as if it were, as the key of a catalog that a new key is not made in.
        if self.takes_no_catalog and (given.get("catalog_name") is not None or given.get("pairs")):
            raise ConfigurationError(f"{self.name} takes no --catalog and no --property: {self.takes_no_catalog}")
        return super().invoke(ctx)

    def _option_meant(self, name: str) -> str:
        """Return the question which option was meant; of --help only if it was misspelt."""
        own = [option for parameter in self.params for option in parameter.opts if option.startswith("--")]
        if name == "--filter" and "--where" in own:
            return question(["--where"])
        return option_near(name, (*own, "--help"))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, needs and exit codes after the options."""
        if self.examples:
            with formatter.section("Examples"):
                for purpose, line in self.examples:
                    formatter.write_text(f"{purpose}:")
                    formatter.write(f"{'':{formatter.current_indent + 2}}{line}\n")

        if self.needs:
            with formatter.section("Needs"):
                formatter.write_text(self.needs)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in self.codes.items()])


def refuse_repeated(command: click.Command, ctx: click.Context, args: Sequence[str]) -> None:
    """Refuse an option that takes one value and is given several: the last one alone would count, and rows of another filter stay.

    Raises:
        click.UsageError: there is one.
    """
    # Parsed once more, for itself: what click hands on has no trace of the value that it dropped.
    _, _, order = command.make_parser(ctx).parse_args(list(args))
    single = [each for each in order if isinstance(each, click.Option) and not (each.multiple or each.is_flag or each.count)]
    for option in single:
        if single.count(option) > 1:
            raise click.UsageError(f"{max(option.opts, key=len)} is given {single.count(option)} times, and takes one value", ctx)


def check_replaced(option: str, file: Path, begins: bytes, what: str) -> None:
    """Refuse to replace a file of another kind: a name that the shell completed may be that of the key file, without which no table opens.

    Args:
        option: the one that names the file, for the error.
        file: what is to be written. It need not be there; an empty file, a pipe or a device may be.
        begins: the first bytes of a file of the kind, in lower case.
        what: how people call such a file.

    Raises:
        ConfigurationError: there is a file that begins otherwise.
    """
    if not file.is_file() or file.stat().st_size == 0:
        return
    with file.open("rb") as there:
        if there.read(len(begins)).lower() != begins:
            raise ConfigurationError(f"{option} {file}: there is a file that is no {what}, and it is not replaced: name another file")


def option_near(name: str, options: Iterable[str]) -> str:
    """Return the question whether an option was meant. Its hyphens are not compared: all options have them."""
    bare = {option.lstrip("-"): option for option in options}
    return question([bare[near] for near in names_near(name.lstrip("-"), bare, 1)])


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation. Required without a terminal.")


class FilePath(click.Path):
    """The path of a file, or of a folder, which is refused where it is blank: that of a variable that is not set is the current folder."""

    def __init__(self, **more: Any) -> None:
        super().__init__(path_type=Path, **more)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not str(value).strip():
            self.fail(f"it is blank: name a {'file' if self.file_okay else 'folder'}", param, ctx)
        # A path loses it, and a file would lie where the folder was meant.
        if not self.dir_okay and str(value).endswith(os.sep):
            self.fail(f"it ends in {os.sep}, as that of a folder: name a file", param, ctx)
        return super().convert(value, param, ctx)


class NumberRange(click.FloatRange):
    """A number from a range. Click's own takes NaN for one of each range, and a limit of NaN is exceeded by nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


def refuse_blank(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return the text of an option, or its texts, unless one is blank: a variable that is not set would leave the option out, unnoticed."""
    for each in value if isinstance(value, tuple) else (value,):
        if each is not None and not each.strip():
            raise click.BadParameter("it is blank: write a value, or leave the option out", context, parameter)
    return value


def _set_loudness(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and parameter.name is not None:
        settings = context.ensure_object(Settings)
        setattr(settings, parameter.name, True)
        settings.check_loudness()


def progress_options(command: F) -> F:
    """Add --quiet and --progress, which may stand before the command too: what `progress_shown` shows."""
    for flags, help_text in (
        (("--progress",), "Show progress even if stderr is not a terminal."),
        (("--quiet", "-q"), "Show neither progress nor retries, only results and errors."),
    ):
        command = click.option(*flags, is_flag=True, expose_value=False, callback=_set_loudness, help=help_text)(command)
    return command


def end_with_found() -> NoReturn:
    """End the command with the code that says that something was found."""
    click.get_current_context().exit(FOUND)


def confirm(losses: str, yes: bool, dry_run: bool = True) -> None:
    """Return if the answer is yes. Any other, and the end of the input, end the command with "nothing was done" and code 2.

    Args:
        losses: what will be lost, as a question.
        yes: whether --yes was given.
        dry_run: whether the command has --dry-run.

    Raises:
        ConfigurationError: there is no terminal to ask on.
    """
    if yes:
        return
    if not _is_terminal(sys.stdin):
        other = ", or try --dry-run first" if dry_run else ""
        raise ConfigurationError(f"{losses} There is no terminal on which to confirm: add --yes{other}")

    click.echo(f"{printable(losses)} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() in ("y", "yes"):
        return

    if not answer:
        click.echo(err=True)
    say("nothing was done", err=True)
    click.get_current_context().exit(REFUSED)


def _is_terminal(stream: TextIO | None) -> bool:
    # Python has no stdin where the process was started with it closed.
    return stream is not None and stream.isatty()


@dataclass(frozen=True)
class Chosen:
    """Which tables a command is for: one by its name, or those that globs choose."""

    table: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    @classmethod
    def of(cls, table: str | None, include: tuple[str, ...], exclude: tuple[str, ...]) -> Self:
        """Return what the arguments say; a glob in the place of a table is one of those to include."""
        if table is None or not is_glob(table):
            return cls(table, include, exclude)
        return cls(None, (table, *include), exclude)

    @property
    def is_several(self) -> bool:
        """Whether globs choose.

        Raises:
            ConfigurationError: neither a table nor a glob is given, or both are.
        """
        self.refuse_both()
        if not self._has_globs and self.table is None:
            raise ConfigurationError("name a table, or choose several with --include 'db.*', or all with --include '*'")
        return self._has_globs

    def refuse_both(self) -> None:
        """Refuse a table together with globs.

        Raises:
            ConfigurationError: both are given.
        """
        if self._has_globs and self.table is not None:
            raise ConfigurationError(f"{self.table} is one table: --include and --exclude choose among all of the catalog")

    @property
    def _has_globs(self) -> bool:
        return bool(self.include or self.exclude)


def run_on(
    settings: Settings,
    chosen: Chosen,
    operation: Callable[[Table, ProgressListener], Any],
    as_json: bool,
    show_one: Callable[[Any], None] = lambda result: show(result, as_json=False),
    is_bad: Callable[[Any], bool] = lambda result: False,
) -> None:
    """Run an operation and print its result; end with code 1 if a table of several failed, or is bad.

    Args:
        settings: the command's.
        chosen: which tables.
        operation: is given a table, and a listener for its progress.
        as_json: whether to print JSON.
        show_one: prints one result for people.
        is_bad: whether a result says that something was found.
    """
    if not chosen.is_several:
        with progress_shown(settings) as listener:
            result = operation(settings.table(chosen.table or ""), listener)
        show(result, as_json) if as_json else show_one(result)
        if is_bad(result):
            end_with_found()
        return

    with progress_shown(settings) as listener:
        done = _on_each(settings, chosen, operation, listener)
    bad = sum(map(is_bad, done.results))
    show(done, as_json) if as_json else _print_each(done, show_one, bad)
    if done.failed or bad:
        end_with_found()


def _on_each(
    settings: Settings, chosen: Chosen, operation: Callable[[Table, ProgressListener], Any], listener: ProgressListener
) -> CatalogResult[Any]:
    from tablecrypt.maintenance import on_tables
    from tablecrypt.maintenance.catalog_tables import named
    from tablecrypt.table.table_files import name_of

    def one(table: Table) -> Any:
        return operation(table, named(listener, name_of(table)))

    return on_tables(settings.catalog(), one, include=chosen.include, exclude=chosen.exclude)


def _print_each(done: CatalogResult[Any], show_one: Callable[[Any], None], bad: int) -> None:
    for each in done.outcomes:
        if each.result is not None:
            show_one(each.result)
        elif each.error is not None:
            what = said_of(each.error) if is_external(each.error) else f"{type(each.error).__name__}: {each.error}"
            say(f"{each.table}: FAILED: {one_line(what)}")
        else:
            say(f"{each.table}: not encrypted, left as it is")

    say(_summary(done, bad))


def _summary(done: CatalogResult[Any], bad: int) -> str:
    """Return the line that sums up."""
    numbers = {"done": len(done.results) - bad, "bad": bad, "failed": len(done.failed), "not encrypted": len(done.skipped)}
    counts = [f"{number:,} {what}" for what, number in numbers.items() if number or what in {"done", "failed"}]
    return f"{counted(len(done.outcomes), 'table', 'tables')}: {', '.join(counts)}"
