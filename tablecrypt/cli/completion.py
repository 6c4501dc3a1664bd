"""`tablecrypt completion`: the script that teaches a shell the command's verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Verb,
    examples=[
        ("bash", 'eval "$(tablecrypt completion bash)"'),
        ("zsh, in ~/.zshrc", 'eval "$(tablecrypt completion zsh)"'),
        ("fish", "tablecrypt completion fish > ~/.config/fish/completions/tablecrypt.fish"),
    ],
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell's completion script.

    Evaluate what it prints where your shell starts, and TAB completes verbs and options.
    """
    source = get_completion_class(shell)
    if source is None:
        raise ConfigurationError(f"this version of click has no completion for {shell}")
    click.echo(source(context.find_root().command, {}, "tablecrypt", "_TABLECRYPT_COMPLETE").source())
