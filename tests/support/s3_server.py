"""moto's S3 in a process of its own, for tests that let Arrow's client of S3 fail in the middle of an upload.

Arrow completes an abandoned upload when it destroys the stream, and holds the interpreter's lock meanwhile. A server in the same process
answers nobody until Arrow gives up after 3 seconds, with NETWORK_CONNECTION.
"""

from __future__ import annotations

import sys
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.aws import REGION, s3_properties
from tests.support.server_process import RunningServer, ServerProcess, free_port


class S3Server(RunningServer):
    """One running server, without a bucket at first."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self.s3 = boto3.client("s3", endpoint_url=self.endpoint, region_name=REGION)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._server = ServerProcess("S3 server", command, folder / "s3.log", self._answers)

    @property
    def s3_properties(self) -> dict[str, str]:
        """What a PyIceberg FileIO needs to reach this server."""
        return s3_properties(self.endpoint)

    def bucket(self, name: str) -> str:
        """Create the bucket; return its name."""
        self.s3.create_bucket(Bucket=name)
        return name

    def _answers(self) -> bool:
        try:
            self.s3.list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True
