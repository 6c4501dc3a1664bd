"""`tablecrypt doctor`: whether everything is there that a user needs, and what to do where it is not."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.main import is_of_the_world
from tablecrypt.cli.options import json_option
from tablecrypt.cli.output import say
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import TablecryptError

if TYPE_CHECKING:
    from tablecrypt.maintenance import Check, CheckUp

_MARKS: Final = {"works": "ok", "noted": "--", "fails": "FAILS"}


@click.command(
    cls=Verb,
    examples=[
        ("Before the first table", "tablecrypt --catalog prod doctor --key-id alias/orders"),
        ("Why a job cannot write", "tablecrypt --catalog prod doctor db.orders"),
        ("With a reader's rights", "tablecrypt --catalog prod doctor db.orders --read-only"),
    ],
    needs="Nothing: what is missing is what it tells.",
    codes={exit_codes.FOUND: "something does not work; the report says what to do"},
)
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--key-id", "key_ids", metavar="KEY", multiple=True, help="A master key to try, beside the table's; repeatable.")
@click.option("--read-only", is_flag=True, help="Wrap nothing and write nothing.")
@json_option
@pass_settings
@click.pass_context
def doctor(context: click.Context, settings: Settings, table: str | None, key_ids: tuple[str, ...], read_only: bool, as_json: bool) -> None:
    """Try out whether everything works.

    Loads the catalog, has the key service wrap and unwrap a random probe under each master key, opens TABLE's newest key, lists and reads
    its folder, and writes, reads back and deletes a probe there: an encrypted file of random bytes. Looks at pins, versions and Java.
    Says of each what works, what does not, and what to do. No table is changed.
    """
    found = _check_up(settings, table, key_ids, read_only)
    if as_json:
        show(found, as_json)
    else:
        _print(found)
    if not found.is_well:
        context.exit(exit_codes.FOUND)


def _check_up(settings: Settings, table: str | None, key_ids: tuple[str, ...], read_only: bool) -> CheckUp:
    from tablecrypt.maintenance import doctor as check_up
    from tablecrypt.maintenance._doctor import without_catalog

    try:
        catalog = settings.catalog()
    except Exception as error:
        if not isinstance(error, TablecryptError) and not is_of_the_world(error):
            raise
        return without_catalog(settings.catalog_name or "default", error)
    return check_up(catalog, table, key_ids=key_ids, read_only=read_only)


def _print(found: CheckUp) -> None:
    for area, checks in groupby(found.checks, key=lambda check: check.area):
        say(area)
        for check in checks:
            _print_check(check)
    failing = sum(check.state.value == "fails" for check in found.checks)
    say("everything that was tried works" if found.is_well else f"{failing:,} of {len(found.checks):,} checks fail")


def _print_check(check: Check) -> None:
    say(f"  {_MARKS[check.state.value]:<5}  {check.name}: {check.found}")
    if check.advice:
        say(f"         → {check.advice}")
