"""versitygw, an S3 server in Go that keeps objects as files of this machine, and their versions in a folder beside them."""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import boto3
import fsspec

from tests.services.programs import go_program, problem_without
from tests.services.stores import ObjectStore
from tests.support.aws import REGION
from tests.support.server_process import RunningServer, ServerProcess, free_port, listens

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

VERSION: Final = "v1.8.0"


def versitygw_problem() -> str | None:
    """None where versitygw can run, else a sentence that says what is missing."""
    return problem_without("versitygw", "go")


class Versitygw(RunningServer):
    """One running server. `s3` is its client that is no part of PyIceberg."""

    def __init__(self, folder: Path) -> None:
        port, access, secret = free_port(), secrets.token_hex(8), secrets.token_hex(16)
        program = go_program("github.com/versity/versitygw/cmd/versitygw", VERSION)
        for name in ("objects", "versions"):
            (folder / name).mkdir()
        posix = ["posix", "--versioning-dir", str(folder / "versions"), str(folder / "objects")]
        environment = os.environ | {"ROOT_ACCESS_KEY_ID": access, "ROOT_SECRET_ACCESS_KEY": secret}
        self._server = ServerProcess(
            "versitygw",
            [program, "--port", f"127.0.0.1:{port}", "--quiet", *posix],
            folder / "server.log",
            partial(listens, port),
            environment,
        )
        endpoint = f"http://127.0.0.1:{port}"
        self._properties = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": access,
            "s3.secret-access-key": secret,
            "s3.session-token": "",
            "s3.region": REGION,
            "s3.force-virtual-addressing": "false",
        }
        self.s3: S3Client = boto3.client(
            "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id=access, aws_secret_access_key=secret, aws_session_token=""
        )
        self._files = fsspec.filesystem(
            "s3", key=access, secret=secret, endpoint_url=endpoint, use_listings_cache=False, skip_instance_cache=True
        )

    def store(self, file_io: str) -> ObjectStore:
        """A new bucket, for one of FILE_IOS."""
        name = f"b{secrets.token_hex(6)}"
        self.s3.create_bucket(Bucket=name)
        return ObjectStore(f"s3://{name}", file_io, self._properties, self._files)
