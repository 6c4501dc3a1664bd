"""Commands of a partner: a key pair to which shares are sealed, and accepting one under his own master key."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tablecrypt.cli._framework import DocumentedCommand, json_option
from tablecrypt.cli._output import show
from tablecrypt.cli.settings import Settings, pass_settings

_KEY_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=DocumentedCommand,
    examples=[("A key pair, whose public half you send to whoever shares with you", "tablecrypt share-keygen partner.key")],
)
@click.argument("key_file", metavar="KEY_FILE", type=_KEY_FILE)
@json_option
def share_keygen(key_file: Path, as_json: bool) -> None:
    """Create a key pair to which shares are sealed.

    The private key goes into KEY_FILE, which its owner alone can read, and the public key beside it into a file that ends in .pub. Send the
    public one to whoever shares with you, on a way on which nobody can exchange it, and keep the private one: accept takes it.

    Keys are of ML-KEM-768 and X25519 together, so that a quantum computer that reads what is stored today is of no use.
    """
    from tablecrypt.maintenance.sharing.sealing import create_key_pair

    public_file, public_key = create_key_pair(key_file.expanduser())
    said = f"Created {key_file} and {public_file}. Its fingerprint is {public_key.key_id}: compare it with whoever got the public file."
    show({"key_file": str(key_file), "public_file": str(public_file), "key_id": public_key.key_id}, as_json, said)


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "A share of somebody's orders, under your own key",
            "tablecrypt --catalog prod accept s3://partner/orders/metadata/00000-3f0c5a86-6e0f-4c1e-8d1c-2a9a4b3c1d5e.metadata.json "
            "--key-file partner.key --to alias/lake --location s3://lake/shared-orders",
        ),
    ],
    needs="Permission to wrap and unwrap with the master key, to read the share's metadata, and to write at the location.",
)
@click.argument("metadata", metavar="METADATA")
@click.option("--key-file", required=True, type=_KEY_FILE, metavar="FILE", help="The private key, as share-keygen made it.")
@click.option("--to", "to_key_id", required=True, metavar="TEXT", help="Your master key, which opens the share from now on.")
@click.option("--location", required=True, metavar="LOCATION", help="Where the accepted metadata goes: a folder of your own.")
@json_option
@pass_settings
def accept(settings: Settings, metadata: str, key_file: Path, to_key_id: str, location: str, as_json: bool) -> None:
    """Accept a share that was sealed to your public key.

    METADATA is the share's metadata.json, as the one who shares has sent it. New metadata at the location names the same files under your
    own master key: register it in a catalog. The share's files stay where they are. Each update of the share is accepted again.
    """
    from tablecrypt.maintenance.sharing.acceptance import accept as accept_share

    properties = {name: str(value) for name, value in settings.kms_properties().items()}
    show(accept_share(metadata, to_key_id, str(key_file), location, properties), as_json)
