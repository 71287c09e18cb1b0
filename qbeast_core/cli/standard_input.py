"""The standard input as a source: in memory if it is small, else in a temporary file, because rows are read twice."""

from __future__ import annotations

import io
import shutil
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from qbeast_core.resources import Resources
from qbeast_core.table.engine.choice import budget_of, spill_folder_of
from qbeast_core.table.engine.spill.folder import SpillFolder

# Reads the standard input to its end; gives its bytes, or a file of them.
StandardInput = Callable[[], io.BytesIO | Path]

_SHARE: Final = 16  # of the budget: these bytes come on top of the rows that are read from them
_CHUNK_BYTES: Final = 1 << 20


@contextmanager
def standard_input(resources: Resources) -> Generator[StandardInput]:
    """Give what reads the standard input; its temporary file is gone afterwards."""
    with ExitStack() as stack:

        def read() -> io.BytesIO | Path:
            # Polars installs a handler that lets a read go on after Ctrl-C: a read that waits could not be stopped.
            signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003 - a function of C, without keywords
            most = budget_of(resources).memory_bytes // _SHARE
            first = sys.stdin.buffer.read(most + 1)
            if len(first) <= most:
                return io.BytesIO(first)
            folder = SpillFolder(spill_folder_of(resources))
            stack.callback(folder.close)
            path = Path(folder.new_path())
            with folder.writing(), path.open("wb") as file:
                file.write(first)
                shutil.copyfileobj(sys.stdin.buffer, file, _CHUNK_BYTES)
            return path

        yield read
