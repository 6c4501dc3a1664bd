"""`tablecrypt completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click

from tablecrypt.cli._framework import OPENS_NONE, DocumentedCommand
from tablecrypt.cli._output import say
from tablecrypt.errors import ConfigurationError


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[
        ("bash", 'eval "$(tablecrypt completion bash)"'),
        ("zsh, in ~/.zshrc", 'eval "$(tablecrypt completion zsh)"'),
        ("fish", "tablecrypt completion fish > ~/.config/fish/completions/tablecrypt.fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell's completion script.

    Evaluate the output in your shell's startup file, and TAB completes commands and options.
    """
    from click.shell_completion import get_completion_class

    source = get_completion_class(shell)
    if source is None:
        raise ConfigurationError(f"this version of click has no completion for {shell}")
    for line in source(context.find_root().command, {}, "tablecrypt", "_TABLECRYPT_COMPLETE").source().splitlines():
        say(line)
