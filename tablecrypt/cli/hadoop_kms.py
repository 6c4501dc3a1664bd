"""`tablecrypt hadoop-kms`: a Hadoop KMS for ORC's column encryption, in front of any key service.

Requests are logged to stderr, a line each, without keys and tokens. SIGTERM and SIGINT stop it once the requests under way are answered.
"""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Any

import click

from tablecrypt.cli.output import say
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.verb import Verb

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=Verb,
    examples=[
        (
            "AWS KMS for the Spark of a cluster",
            "tablecrypt -p encryption.kms-type=aws hadoop-kms --key-file orc-keys.json --allow-list allow.toml \\\n"
            "      --host 0.0.0.0 --certificate server.pem --private-key server.key --client-ca users-ca.pem",
        ),
        ("What Spark is told", "spark.hadoop.hadoop.security.key.provider.path=kms://https@kms.example.org:9600/kms"),
    ],
    needs="Permission to unwrap with the master keys that the key file names.",
)
@click.option("--key-file", required=True, type=_FILE, help="The keys to serve; tablecrypt hadoop-kms-key makes them.")
@click.option("--allow-list", required=True, type=_FILE, help="Who may use which key, in TOML; whoever is not in it may use none.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen. Any but a loopback address needs --certificate.")
@click.option("--port", default=9600, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--certificate", type=_FILE, help="PEM file of the server's certificate chain.")
@click.option("--private-key", type=_FILE, help="PEM file of its private key.")
@click.option("--client-ca", type=_FILE, help="PEM file of the authority whose client certificates prove a user.")
@click.option("--believe-names", is_flag=True, help="Take the name that a client gives for a proof. On loopback addresses only.")
@click.option("--workers", default=32, show_default=True, type=click.IntRange(1, 1000), help="Requests answered at the same time.")
@click.option("--seconds", default=15.0, show_default=True, type=click.FloatRange(0.1, 600), help="Time for a request to arrive whole.")
@click.option("--rate", default=200.0, show_default=True, type=click.FloatRange(0.1), help="Requests a second of one user.")
@click.option("--burst", default=1000, show_default=True, type=click.IntRange(1), help="Requests of one user at once, after a pause.")
@pass_settings
def hadoop_kms(
    settings: Settings, /, key_file: Path, allow_list: Path, believe_names: bool, rate: float, burst: int, **listening: Any
) -> None:
    """Serve the keys of encrypted ORC columns to Spark and Hive.

    Speaks the part of Hadoop's KMS protocol that ORC uses, in front of the key service that the properties name. Master keys stay here: a
    client gets the local keys of single files. A denied key is an error for the client, and not ORC's silent masks, unless the allow list
    says masks.
    """
    from tablecrypt.hadoop_kms.access import AllowListFile
    from tablecrypt.hadoop_kms.master_keys import MasterKeyFile
    from tablecrypt.hadoop_kms.protocol import HadoopKms, RateLimit
    from tablecrypt.hadoop_kms.server import HadoopKmsServer, ServerSettings
    from tablecrypt.kms.factory import load_kms

    kms = load_kms(settings.kms_properties())
    keys = MasterKeyFile(key_file, kms)
    # What cannot be read is better said now than to the first client.
    names = keys.names()
    listed = AllowListFile(allow_list)
    listed.read()
    service = HadoopKms(keys, listed.read, RateLimit(rate, burst), believe_names=believe_names)
    server = HadoopKmsServer(service, ServerSettings(**listening))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    for stopping in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stopping, lambda *_: server.stop())
    say(f"serving {len(names)} keys at {server.url}")
    server.serve()
    kms.close()
