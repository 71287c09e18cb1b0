"""The extension ``%load_ext qbeast_spark_bridge`` of IPython: errors of the data source show as one message."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from qbeast_spark_bridge.session import explain_error

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Print the message of an error of ``format("qbeast")`` in place of its traces; other errors are unchanged."""
    shell.set_custom_exc((PySparkException,), _show)


def _show(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    message = explain_error(error)
    if message == str(error):
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    else:
        sys.stderr.write(f"{kind.__name__}: {message}\n")
