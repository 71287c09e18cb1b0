"""Run calls in threads, a few ahead of the consumer of their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


def map_ahead(
    call: Callable[[ItemT], AnswerT], items: Iterable[ItemT], *, at_once: int
) -> Generator[AnswerT]:
    """Yield the results in the order of the items. At most `at_once` more items are taken than results.

    >>> list(map_ahead(abs, iter([-1, 2, -3]), at_once=2))
    [1, 2, 3]
    """
    waiting: deque[Future[AnswerT]] = deque()
    pool = ThreadPoolExecutor(at_once)
    try:
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
