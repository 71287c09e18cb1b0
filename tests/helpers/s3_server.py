"""An S3 server in this process, on the loopback address, that handles one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.server import ThreadedMotoServer
from werkzeug.serving import make_server

__all__ = ["S3Server"]


class S3Server(ThreadedMotoServer):
    """Moto's server with a lock: without it, two concurrent conditional puts can both win."""

    def __init__(self) -> None:
        super().__init__(ip_address="127.0.0.1", port=0, verbose=False)

    def _server_entry(self) -> None:
        app, lock = DomainDispatcherApplication(create_backend_app), Lock()

        def one_at_a_time(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            with lock:
                return [b"".join(app(environ, start))]

        self._server = make_server(
            self._ip_address, self._port, one_at_a_time, threaded=True, request_handler=MotoRequestHandler
        )
        self._server_ready_event.set()
        self._server.serve_forever()
