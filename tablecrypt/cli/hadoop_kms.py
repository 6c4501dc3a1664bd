"""Commands about a Hadoop KMS for ORC's column encryption, in front of any key service: the server, its keys and its users' tokens.

The server logs requests to stderr, a line each, without keys and tokens. SIGTERM and SIGINT stop it once the requests under way are
answered. A token goes into a file of mode 0600 and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from tablecrypt._atomic_file import atomic_file
from tablecrypt.arguments import file_path
from tablecrypt.cli._framework import OPENS_NONE, DocumentedCommand, FilePath, NumberRange, json_option, refuse_blank
from tablecrypt.cli._output import say, show
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import counted

DEFAULT_LENGTH: Final = 16
_FILE = FilePath(dir_okay=False)


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "AWS KMS for the Spark of a cluster",
            "tablecrypt -p encryption.kms-type=aws hadoop-kms --key-file orc-keys.json --allow-list allow.toml \\\n"
            "      --host 0.0.0.0 --certificate server.pem --private-key server.key --client-ca users-ca.pem",
        ),
        ("The setting for Spark", "spark.hadoop.hadoop.security.key.provider.path=kms://https@kms.example.org:9600/kms"),
    ],
    needs="Permission to unwrap with the master keys that the key file names.",
)
@click.option("--key-file", required=True, type=_FILE, help="The keys to serve; tablecrypt hadoop-kms-key makes them.")
@click.option(
    "--allow-list", required=True, type=_FILE, help="A TOML file that says who may use which key; a user who is not in it may use none."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen. Any but a loopback address needs --certificate.")
@click.option("--port", default=9600, show_default=True, type=click.IntRange(0, 65535), help="Where to listen; 0 chooses a free port.")
@click.option("--certificate", type=_FILE, help="PEM file of the server's certificate chain.")
@click.option("--private-key", type=_FILE, help="PEM file of its private key.")
@click.option("--client-ca", type=_FILE, help="PEM file of the authority whose client certificates prove a user.")
@click.option("--believe-names", is_flag=True, help="Trust the user name that a client gives, without proof. On loopback addresses only.")
@click.option("--workers", default=32, show_default=True, type=click.IntRange(1, 1000), help="Requests answered at the same time.")
@click.option("--seconds", default=15.0, show_default=True, type=NumberRange(0.1, 600), help="Seconds in which a request has to arrive.")
@click.option("--rate", default=200.0, show_default=True, type=NumberRange(0.1), help="Requests per second of one user.")
@click.option(
    "--burst", default=1000, show_default=True, type=click.IntRange(1), help="Requests that one user may send at once after a pause."
)
@pass_settings
def hadoop_kms(
    settings: Settings, /, key_file: Path, allow_list: Path, believe_names: bool, rate: float, burst: int, **listening: Any
) -> None:
    """Serve the keys of encrypted ORC columns to Spark and Hive.

    Speaks the part of Hadoop's KMS protocol that ORC uses, in front of the key service that the properties name. Clients never get a master
    key, only the local keys of single files. If a key is denied, the client gets an error and not ORC's silent masks, unless the allow list
    asks for masks.
    """
    from tablecrypt.hadoop_kms.access import AllowListFile
    from tablecrypt.hadoop_kms.master_keys import MasterKeyFile
    from tablecrypt.hadoop_kms.protocol import HadoopKms, RateLimit
    from tablecrypt.hadoop_kms.server import HadoopKmsServer, ServerSettings
    from tablecrypt.kms.factory import load_kms

    kms = load_kms(settings.kms_properties())
    keys = MasterKeyFile(key_file, kms)
    # Say what cannot be read now rather than to the first client.
    names = keys.names()
    listed = AllowListFile(allow_list)
    listed.read()
    service = HadoopKms(keys, listed.read, RateLimit(rate, burst), believe_names=believe_names)
    server = HadoopKmsServer(service, ServerSettings(**listening))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    for stopping in (signal.SIGTERM, signal.SIGINT):
        # Requests under way are answered: a client that is cut off shows ORC's masks without an error.
        signal.signal(stopping, lambda *_: server.stop())
    say(f"serving {counted(len(names), 'key', 'keys')} at {server.url}")
    server.serve()
    kms.close()


@click.command(
    cls=DocumentedCommand,
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
@click.option("--key-file", required=True, type=_FILE, help="The key file; created if it does not exist.")
@click.option(
    "--master-key",
    callback=refuse_blank,
    help="The key service's key. Needed for a new key; a new version uses that of the last one by default.",
)
@click.option("--length", type=click.Choice([16, 32]), help="Length of a new key in bytes; 16 unless given.")
@click.option("--roll", is_flag=True, help="Add a version to an existing key.")
@json_option
@pass_settings
def hadoop_kms_key(
    settings: Settings, name: str, key_file: Path, master_key: str | None, length: int | None, roll: bool, as_json: bool
) -> None:
    """Create a key for encrypting ORC files.

    NAME is the key's name in the option orc.encrypt. The key is random. The file holds it encrypted under a key of the key service, without
    which the file is of no use. Keep copies of the file: without it, every ORC file under its keys is lost. Older versions of a key stay in
    it for the files that use them.
    """
    from tablecrypt.hadoop_kms.master_keys import create_key, roll_key
    from tablecrypt.kms.factory import load_kms

    if roll and length is not None:
        raise ConfigurationError("--length belongs to a new key: a new version is as long as the key is")

    key_file = file_path("the key file", str(key_file))
    now_ms = time.time_ns() // 1_000_000
    kms = load_kms(settings.kms_properties())

    if roll:
        version = roll_key(key_file, kms, name, now_ms, master_key)
    elif master_key is None:
        raise ConfigurationError("a new key needs --master-key")
    else:
        version = 0
        create_key(key_file, kms, name, master_key, now_ms, length or DEFAULT_LENGTH)

    kms.close()
    said = f"Added version {version} of key {name} to {key_file}." if roll else f"Added key {name} to {key_file}. Keep a copy of the file."
    show({"key": name, "version": version, "key_file": str(key_file)}, as_json, said)


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[
        ("A token", "tablecrypt hadoop-kms-token --token-file etl.token"),
        ("Where it goes", "hadoop.security.key.provider.path=kms://https@kms.example.org:9600/token/<token>/kms"),
    ],
)
@click.option("--token-file", required=True, type=_FILE, help="The new file; it must not exist yet.")
@json_option
def hadoop_kms_token(token_file: Path, as_json: bool) -> None:
    """Create a token for a user of hadoop-kms.

    Prints the token's hash, which belongs in the allow list: [users.NAME] token-sha256 = ["..."]. The token proves that user to the server.
    It is among Spark's settings, so use it over TLS, and use client certificates where many people can see those settings.
    """
    from tablecrypt.hadoop_kms.access import new_token, token_hash

    token_file, token = file_path("the token file", str(token_file)), new_token()
    try:
        # Never over another token, which its user would lose.
        with atomic_file(token_file, replace=False) as file:
            file.write(f"{token}\n".encode())
    except OSError as error:
        raise ConfigurationError(f"the token file {token_file} cannot be made ({error.strerror})") from error

    proof = token_hash(token)
    said = f'Wrote a token to {token_file}. For the allow list: token-sha256 = ["{proof}"]'
    show({"token_sha256": proof, "token_file": str(token_file)}, as_json, said)
