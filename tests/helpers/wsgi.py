"""A server of an application on the loopback address, in a thread of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

__all__ = ["serving"]


class _Silent(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving(application: Callable[..., Any], *, threaded: bool = False) -> Iterator[str]:
    """Run a server; yield its address."""
    server = make_server("127.0.0.1", 0, application, threaded=threaded, request_handler=_Silent)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
