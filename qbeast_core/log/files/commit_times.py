"""The time of each version: one rule for the history, for time travel and for restore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qbeast_core.log.actions import CommitInfo

# End of the year 9999, the maximum of `datetime`. Later times are invalid.
LAST_MS: Final = 253_402_300_799_999


def commit_times(commits: Sequence[tuple[CommitInfo | None, int]]) -> list[int]:
    """Return the times of consecutive commits, oldest first, in ms since 1970 UTC.

    Each commit is given by its info and the modification time of its file. Its in-commit timestamp is its time.
    Otherwise it is the timestamp that its writer noted or, without one, the modification time, but not after the next
    commit. Such times ascend, as in Delta: a time that is not after the previous one is moved one ms behind it.

    >>> infos = [CommitInfo(timestamp=5), None, CommitInfo(timestamp=9), CommitInfo(timestamp=7), None]
    >>> commit_times([(info, 100) for info in infos])
    [5, 8, 9, 10, 100]
    """
    times: list[int] = []
    later: int | None = None
    for info, modified_ms in reversed(commits):
        noted = None if info is None else info.time
        if noted is None or not 0 <= noted <= LAST_MS:
            noted = modified_ms if later is None else min(modified_ms, later - 1)
        times.append(noted)
        later = noted
    times.reverse()
    for number, (info, _) in enumerate(commits):
        is_fixed = info is not None and info.in_commit_timestamp == times[number]
        if number and not is_fixed:
            times[number] = max(times[number], times[number - 1] + 1)
    return times
