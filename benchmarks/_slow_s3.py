"""An S3 store in a process of its own (moto) that takes so many milliseconds longer for each request, as a store across a network does."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3

BUCKET = "benchmark"
_PATIENCE_S = 60


@contextmanager
def slow_s3(delay_ms: int) -> Iterator[dict[str, str]]:
    """Yield the properties with which a catalog finds the store, `warehouse` among them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port, delay_ms / 1000), daemon=True)
    process.start()
    try:
        endpoint = f"http://127.0.0.1:{port}"
        access = {"s3.endpoint": endpoint, "s3.access-key-id": "none", "s3.secret-access-key": "none", "s3.region": "us-east-1"}
        _await_port(port)
        store = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="none", aws_secret_access_key="none", region_name="us-east-1")
        store.create_bucket(Bucket=BUCKET)
        yield {**access, "warehouse": f"s3://{BUCKET}"}
    finally:
        process.terminate()
        process.join()


def _serve(port: int, delay_s: float) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    application = DomainDispatcherApplication(create_backend_app)

    def delayed(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(delay_s)
        return application(environment, start)  # type: ignore[no-any-return]

    WSGIRequestHandler.log_request = lambda *arguments: None  # type: ignore[method-assign]
    run_simple("127.0.0.1", port, delayed, threaded=True)


def _await_port(port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
