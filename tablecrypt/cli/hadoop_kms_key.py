"""`tablecrypt hadoop-kms-key`: a key for ORC's column encryption, or a new version of one, in the file that `hadoop-kms` serves."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tablecrypt.cli.options import json_option
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError


@click.command(
    cls=Verb,
    examples=[
        ("A key", "tablecrypt -p encryption.kms-type=aws hadoop-kms-key pii --key-file orc-keys.json --master-key alias/orc"),
        (
            "A new version, for files written from now on",
            "tablecrypt -p encryption.kms-type=aws hadoop-kms-key pii --key-file k.json --roll",
        ),
    ],
    needs="Permission to generate a key with the master key.",
)
@click.argument("name")
@click.option("--key-file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Made if it is not there.")
@click.option("--master-key", help="The key service's key. Needed for a new key; a new version stays with the last one's by default.")
@click.option("--length", default=16, show_default=True, type=click.Choice([16, 32]), help="Length of a new key in bytes.")
@click.option("--roll", is_flag=True, help="Add a version to a key that is there.")
@json_option
@pass_settings
def hadoop_kms_key(settings: Settings, name: str, key_file: Path, master_key: str | None, length: int, roll: bool, as_json: bool) -> None:
    """Make a key that ORC files can be encrypted with.

    NAME is what the option orc.encrypt says. The key is random and stands in the file under a key of the key service, so the file is of no
    use without that; but without the file, every ORC file under its keys is lost: keep copies. Older versions stay in it for their files.
    """
    from tablecrypt.hadoop_kms.master_keys import create_key, roll_key
    from tablecrypt.kms.factory import load_kms

    now_ms = time.time_ns() // 1_000_000
    kms = load_kms(settings.kms_properties())
    if roll:
        version = roll_key(key_file, kms, name, now_ms, master_key)
    elif master_key is None:
        raise ConfigurationError("a new key needs --master-key")
    else:
        version = 0
        create_key(key_file, kms, name, master_key, now_ms, length)
    kms.close()
    show({"key": name, "version": version, "key_file": str(key_file)}, as_json)
