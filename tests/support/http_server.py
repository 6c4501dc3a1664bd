"""An HTTP server for tests: one method answers each request, in threads, on a free port of this machine, with TLS where it is asked for."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.server_process import StoppedAtTheEnd


class HttpServer(StoppedAtTheEnd):
    """Subclass it and define `serve`. It runs from its creation on, until `stop` or the end of its block.

    `certificate` is the files of one and of its private key.
    """

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else a client waits 40 ms for the body behind each head.
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = server.serve(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                if answer is None:
                    self.close_connection = True
                    return
                status, content, headers = answer
                self.send_response(status)
                for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_any

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.uri = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]] | None:
        """Answer a request, whose headers have lower-case names, by a status, JSON and headers. None closes the connection."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
