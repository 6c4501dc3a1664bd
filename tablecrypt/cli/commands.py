"""The commands by name: a line for each, so that their list shows without importing one, and the group that finds and imports them.

Lines of operations come from their declarations (tablecrypt.operations), those of other commands stand here.
"""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import Final

import click

from tablecrypt.cli._framework import BEFORE_COMMAND, option_near, progress_options, refuse_blank, refuse_repeated
from tablecrypt.cli._output import retries_shown, say
from tablecrypt.cli.operations import plain_command
from tablecrypt.cli.settings import Settings, parse_properties
from tablecrypt.operations import OF_COMMANDS
from tablecrypt.setting_kinds import names_near, question

_LINES: Final = {name: each.help.partition("\n")[0] for name, each in OF_COMMANDS.items()}
TABLE_COMMANDS: Final = {
    **{name: line for name, line in _LINES.items() if OF_COMMANDS[name].only_reads},
    "cat": "Print rows of a table or a file.",
    **{name: line for name, line in _LINES.items() if not OF_COMMANDS[name].only_reads},
}
OTHER_COMMANDS: Final = {
    "run": "Run a program in which PyIceberg opens encrypted tables.",
    "activate": "Let every Python program of this environment open encrypted tables.",
    "deactivate": "Undo activate.",
    "demo": "Make an encrypted table, and look at its bytes.",
    "keygen": "Create a master key in a key file.",
    "share-keygen": "Create a key pair to which shares are sealed.",
    "accept": "Accept a share that was sealed to your public key.",
    "encrypt-file": "Encrypt one file.",
    "decrypt-file": "Decrypt one file.",
    "hadoop-kms": "Serve the keys of encrypted ORC columns to Spark and Hive.",
    "hadoop-kms-key": "Create a key for encrypting ORC files.",
    "hadoop-kms-token": "Create a token for a user of hadoop-kms.",
    "spark-jar": "Write the jar for spark-sql, Connect servers and clusters.",
    "completion": "Print the shell's completion script.",
}
_MODULES: Final = {
    "activation": ("activate", "deactivate"),
    "audit": ("audit", "verify", "doctor"),
    "cat": ("cat",),
    "files": ("encrypt-file", "decrypt-file"),
    "hadoop_kms": ("hadoop-kms", "hadoop-kms-key", "hadoop-kms-token"),
    "inspect": ("inspect",),
    "keys": ("keygen", "rotate-kek", "rewrap", "rescue", "share-keygen", "accept"),
    "run": ("run",),
    "spark": ("spark-jar",),
    "tables": ("list", "describe", "migrate", "orphans", "unshare"),
    "shredding": ("erase", "shred"),
    "completion": ("completion",),
    "demo": ("demo",),
}
"""Modules with commands that are functions of their own; the others are made from the declarations alone."""
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}
COMMANDS: Final = {**TABLE_COMMANDS, **OTHER_COMMANDS}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before the command; say of another option where it belongs."""
        try:
            refuse_repeated(self, ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            near = option_near(wrong.option_name, ("--help", "--version", *BEFORE_COMMAND))
            advice = near or ": only --catalog, --property, --quiet and --progress stand before the command"
            raise click.UsageError(f"No such option {wrong.option_name}{advice}", ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in _MODULE_OF:
            return plain_command(OF_COMMANDS[cmd_name].name)

        module = import_module(f"tablecrypt.cli.{_MODULE_OF[cmd_name]}")
        function = cmd_name.replace("-", "_")
        command = getattr(module, f"{function}_command" if function in dir(builtins) else function)

        return command if isinstance(command, click.Command) else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; for a name that none has, say which names come near it."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            advice = ": a table's name stands after the command" if "." in name else question(names_near(name, COMMANDS))
            ctx.fail(f"No such command {name!r}{advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        for title, commands in (("Commands on tables", TABLE_COMMANDS), ("Other commands", OTHER_COMMANDS)):
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def _show_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return

    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("tablecrypt")
    except PackageNotFoundError:
        installed = "run from its source, not installed"

    say(f"tablecrypt {installed}")
    context.exit()


@click.group(
    "tablecrypt",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Run tablecrypt COMMAND --help for details and examples. Exit codes: 0 success, 1 findings, 2 refused or failed.",
)
@click.option(
    "--catalog",
    "catalog_name",
    metavar="NAME",
    callback=refuse_blank,
    help="A catalog that .pyiceberg.yaml or the environment configures; by default the default catalog of PyIceberg.",
)
@click.option(
    "--property",
    "-p",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property of the catalog or the key service, instead of the configured one. "
    "Other users of this machine can see it, so give no password.",
)
@progress_options
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit.")
@click.pass_context
def root(context: click.Context, catalog_name: str | None, pairs: tuple[str, ...]) -> None:
    """Manage encrypted Apache Iceberg tables and their keys."""
    settings = context.ensure_object(Settings)
    settings.catalog_name, settings.properties = catalog_name, parse_properties(pairs)
    context.with_resource(retries_shown(settings))
