"""The command line `qbeast`; it needs the extra ``cli``, and reports if it is missing.

::

    program                     the commands by name; prints their answers and errors
    commands                    arguments, options, answers and exit codes of all commands
    write, read, maintenance    the commands: each loads the library when it runs
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

_NEEDED: Final = ("click", "rich")
_MISSING_DEPENDENCY: Final = 11  # as in commands.py, which needs click


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the interpreter with its exit code."""
    try:
        from qbeast_core.cli.program import program  # noqa: PLC0415 - a missing package is reported in one line
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        text = (
            f"error: the command line needs {error.name}, which is not installed: pip install 'qbeast[cli]'"
        )
        print(text, file=sys.stderr)  # noqa: T201 - there is nothing better to print with
        sys.exit(_MISSING_DEPENDENCY)
    program(args=None if arguments is None else list(arguments), prog_name="qbeast")
