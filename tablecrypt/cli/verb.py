"""What every verb's help looks like: what it does, its options, examples, what it needs, and what its exit codes mean.

exit code 0    done, and nothing to report
          1    something was found, or could not be done
          2    refused: one line on stderr says what and why; wrong arguments too
          130  interrupted
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tablecrypt.cli import exit_codes

_BEFORE_VERB: Final = ("--catalog", "--property", "-p", "--quiet", "-q", "--progress")
_CODES: Final = {
    0: "done",
    exit_codes.REFUSED: "refused, or wrong arguments; stderr says why",
    exit_codes.INTERRUPTED: "interrupted, or answered with no",
}


class Verb(click.Command):
    """A click command with examples, needed permissions and exit codes in its help.

    Args:
        examples: (what it is for, the line to type).
        needs: permissions and other things that must be there.
        codes: exit codes beside those that all verbs share, or instead of them.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[tuple[str, str]] = (),
        needs: str = "",
        codes: Mapping[int, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)
        self.needs = needs
        self.codes = dict(sorted({**_CODES, **(codes or {})}.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what follows the verb; an option that belongs before it is told as such."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            if wrong.option_name not in _BEFORE_VERB:
                raise
            raise click.UsageError(
                f"{wrong.option_name} stands before the verb: tablecrypt {wrong.option_name} … {self.name}", ctx
            ) from None

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
