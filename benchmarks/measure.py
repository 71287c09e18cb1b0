"""Measure seconds in turns, bytes as merged ranges, and memory as the peak of a separate process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Child:
    """The result and cost of a function in a separate process."""

    result: Any
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int  # peak of the whole process since the start of the function


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds per candidate, after one warm-up each; in turns, so that noise affects all equally."""
    for candidate in candidates.values():
        candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        names = list(candidates)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(timed(candidates[name], clock))
    return {name: median(values) for name, values in seconds.items()}


def timed(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a call, without dropping its result."""
    gc.collect()
    start = clock()
    result = function()
    seconds = clock() - start
    del result
    return seconds


def in_child(
    function: Callable[..., Any], *arguments: Any, prepare: Callable[..., Any] | None = None
) -> Child:
    """Run `function(*arguments)`, or `function(prepare(*arguments))`, in a spawned process.

    Time and peak memory begin after `prepare`: what it made is counted while it is held, what it needed to
    make it is not. Functions and arguments must be picklable.
    """
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, function, arguments, prepare))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        process.join()
        message = f"{function.__name__} died in its process (exit code {process.exitcode})"
        raise RuntimeError(message) from None
    finally:
        process.join()


def forget_cached(files: Iterable[Path]) -> None:
    """Drop the files' pages from the system's cache, so that the next read comes from the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def merged_length(ranges: Iterable[tuple[int, int]]) -> int:
    """Return the bytes that ranges (start, length) of a file cover; overlaps count once."""
    total = end = 0
    for start, length in sorted(ranges):
        total += max(0, start + length - max(end, start))
        end = max(end, start + length)
    return total


def folder_bytes(files: Iterable[Path]) -> int:
    """Return the bytes of files on disk."""
    return sum(file.stat().st_size for file in files)


def peak_rss_bytes() -> int:
    """Return the peak memory of this process, since `reset_peak` if the system supports it."""
    # ru_maxrss survives exec, so a child starts with its parent's; VmHWM belongs to this program alone.
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def private_bytes() -> int:
    """Return the private writable memory of this process, used or not, as limited by `RLIMIT_DATA` (Linux)."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


def bytes_read() -> int:
    """Return the bytes that this process has read, cached or not (Linux)."""
    return int(Path("/proc/self/io").read_text().split()[1])


def bytes_written() -> int:
    """Return the bytes that this process has written, cached or not (Linux)."""
    return int(Path("/proc/self/io").read_text().split()[3])


def tree_cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, ended ones included: a JVM and its workers."""
    stats = dict[int, list[int]]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            numbers = file.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        stats[int(file.parent.name)] = [int(numbers[1]), sum(map(int, numbers[11:15]))]
    tree, found = set[int](), {os.getpid()}
    while found:
        tree |= found
        found = {pid for pid, (parent, _) in stats.items() if parent in found} - tree
    return sum(stats[pid][1] for pid in tree & stats.keys()) / os.sysconf("SC_CLK_TCK")


def reset_peak() -> None:
    """Reset the peak (Linux; elsewhere it stays)."""
    if STATUS.exists():
        STATUS.with_name("clear_refs").write_text("5")


def _child(send: Any, function: Callable[..., Any], arguments: tuple[Any, ...], prepare: Any) -> None:
    inputs = arguments if prepare is None else (prepare(*arguments),)
    gc.collect()
    reset_peak()
    start, cpu = time.perf_counter(), time.process_time()
    result = function(*inputs)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    send.send(Child(result, seconds, cpu_seconds, peak_rss_bytes()))
    send.close()
