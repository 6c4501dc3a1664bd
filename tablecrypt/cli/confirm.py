"""Asking before something is destroyed: on a terminal a question, anywhere else --yes or nothing."""

from __future__ import annotations

import sys

import click

from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import printable


def confirm(question: str, yes: bool) -> None:
    """Return if the answer is yes.

    Args:
        question: what will be gone, as a question.
        yes: whether --yes was given.

    Raises:
        ConfigurationError: nobody can be asked.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} Nobody can be asked here: say --yes, or look first with --dry-run")
    click.confirm(printable(question), abort=True, err=True)
