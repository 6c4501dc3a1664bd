"""The command's verbs by name, each imported only when it is used, so that --help and completion answer at once.

A verb is a module of tablecrypt/cli/ with a click command of the same name (- becomes _). Its one-line help stands here too, since the
list of verbs shows it without importing the module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from tablecrypt.cli.nearest import did_you_mean

TABLE_VERBS: Final = {
    "doctor": "Try out whether everything works.",
    "audit": "Look for plaintext, and for keys that need care.",
    "verify": "Authenticate every byte of a table.",
    "inspect": "Show how a table or a file is put together.",
    "cat": "Print rows of a table or a file.",
    "rotate-kek": "Give a table a new KEK now.",
    "rewrap": "Wrap the KEKs anew under the newest master key version.",
    "prune-keys": "Remove keys that no snapshot needs.",
    "reencrypt": "Encrypt data files anew under fresh keys.",
    "migrate": "Make an encrypted table of a plaintext one.",
    "compact": "Rewrite small files and applied deletes.",
    "rescue": "Bring back a lost key from older metadata.",
    "relocate": "Copy a table to another place or master key.",
    "shred": "Destroy the keys of snapshots, or of a whole table.",
    "orphans": "Find and remove files that the table does not know.",
}
FILE_VERBS: Final = {
    "keygen": "Make a master key in a key file.",
    "encrypt-file": "Encrypt one file.",
    "decrypt-file": "Decrypt one file.",
    "hadoop-kms": "Serve the keys of encrypted ORC columns to Spark and Hive.",
    "hadoop-kms-key": "Make a key that ORC files can be encrypted with.",
    "hadoop-kms-token": "Make a token for a user of hadoop-kms.",
    "completion": "Print the shell's completion script.",
}
VERBS: Final = {**TABLE_VERBS, **FILE_VERBS}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"tablecrypt.cli.{name}"), name)
        return command if isinstance(command, click.Command) else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that stands first; of one that is not there, tell what it comes near to."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in VERBS:
            ctx.fail(f"No such command {name!r}{did_you_mean(name, VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs without importing them."""
        for title, verbs in (("Verbs on tables", TABLE_VERBS), ("Other verbs", FILE_VERBS)):
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))
