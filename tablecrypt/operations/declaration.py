"""What a declaration says of an operation, beside what its function says by itself: the classes, and what several declarations share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tablecrypt.operations.rights import Rights


@dataclass(frozen=True)
class Option:
    """An option of a command: in most cases a parameter of the operation's function.

    Attributes:
        help: one sentence or two.
        value: what stands for the value in the help, which also says what it may be: FILTER, N, [16|24|32]. Empty for a flag.
        flags: how it is written, if that is not the parameter's name.
        kind: what the value may be, if `value` does not say it.
        default: what holds without the option, if the help shows it.
        alone: the value if the option is given without one; None if it needs one.
        is_repeatable, is_required: whether it may be given several times, and whether it has to be given.
    """

    help: str
    value: str = ""
    flags: tuple[str, ...] = ()
    kind: str = ""
    default: int | float | str | None = None
    alone: str | None = None
    is_repeatable: bool = False
    is_required: bool = False


@dataclass(frozen=True)
class Operation:
    """An operation of tablecrypt.maintenance.

    Attributes:
        name: its function's.
        help: a line for the list of commands, and paragraphs. Empty if the operation is an option of another one's command.
        called: the command's name, if it is not the function's.
        arguments: of the command, by their parameters; one that may be left out is in brackets.
        options: of the command, by their parameters, in the order of the help. The facts below add others behind them.
        examples: what each is for, and the line to type.
        rights: permissions.
        needs: what else is to be said of them.
        found: what exit code 1 says, if the command has it.
        refused: what exit code 2 says, if not what it says of all commands.
        only_reads: whether the table stays as it is. All others have a dry run.
        on_files: whether it works on files in threads here or on a cluster: `workers` and `runner`.
        has_progress: whether the command shows progress.
        asks: whether the command asks for confirmation before something is lost.
        procedure: whether SQL calls the function as it is. If not, SQL has a procedure of its own or none.
    """

    name: str
    help: str = ""
    called: str = ""
    arguments: Mapping[str, str] = field(default_factory=lambda: {"table": "TABLE"})
    options: Mapping[str, Option] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    rights: Rights = field(default_factory=Rights)
    needs: str = ""
    found: str = ""
    refused: str = ""
    only_reads: bool = False
    on_files: bool = False
    has_progress: bool = True
    asks: bool = False
    procedure: bool = True

    @property
    def command(self) -> str:
        """The name of its command, or of the command that it is an option of."""
        return self.called or self.name.replace("_", "-")

    @property
    def permissions(self) -> str:
        """What the help says of the rights that the operation needs."""
        return " ".join(filter(None, (self.rights.sentences, self.needs)))


SEVERAL: Final = {"table": "[TABLE|GLOB]"}
GLOBS: Final = {
    "include": Option("Of the whole catalog: tables whose names match; repeatable.", "GLOB", is_repeatable=True),
    "exclude": Option("Of the whole catalog: leave out tables whose names match; repeatable.", "GLOB", is_repeatable=True),
}
DELETE_BELOW: Final = Option(
    "A folder in which the table's files may be deleted or overwritten although no pin covers it; repeatable.",
    "LOCATION",
    is_repeatable=True,
)
BREAK_SHARES: Final = Option("Go on although live shares name files that go, or are to become unreadable.")
MANIFESTS_BELOW: Final = Option(
    "A folder of the table, and of no other, in which its manifests lie although no pin covers it; repeatable.",
    "LOCATION",
    is_repeatable=True,
)
TABLE_FAILED: Final = "of several tables, one failed; the report says which and why"
