"""Run a command that cannot outlive its parent: `python keeper.py COMMAND ...` ends with its input, or the command.

The parent holds the other end of the pipe. When the parent closes it, or dies in whatever way, every process of
the command's session is killed, those too that made process groups of their own, as Spark's Python workers do.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Start the command, wait for the end of the input, kill."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while child.poll() is None and not _ended(0.2):
            pass
    finally:
        for _ in range(100):  # what is forked while we look is found when we look again
            members = _session(child.pid)
            if not members:
                break
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.05)


def _ended(seconds: float) -> bool:
    """Whether the input ends within the time."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1)


def _session(leader: int) -> list[int]:
    """List the living processes of a session."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # "pid (name) state parent group session ...": a name may hold anything, brackets too
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                members.append(int(stat.parent.name))
    return members


if __name__ == "__main__":
    main()
