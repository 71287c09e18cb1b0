"""The golden tables: some beside the tests, all of them where ``QBEAST_GOLDEN`` says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast

__all__ = ["BUNDLE", "VARIABLE", "WRITERS", "Golden", "each", "find", "open_golden", "read_collection"]

BUNDLE = Path(__file__).parent / "tables"
WRITERS = ("legacy", "qbeast-spark-0.7.1", "qbeast-spark-0.8")
VARIABLE = "QBEAST_GOLDEN"


@dataclass(frozen=True)
class Golden:
    """A table that a JVM wrote, and what it answered."""

    folder: Path

    def __str__(self) -> str:
        return f"{self.writer}-{self.name}"

    @property
    def writer(self) -> str:
        return self.folder.parent.name

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> Path:
        return self.folder / "table"

    @property
    def is_legacy(self) -> bool:
        return self.writer == "legacy"

    @property
    def is_doubled(self) -> bool:
        """Whether a bug of its writer left rows twice where the tags cannot tell."""
        return self.name.endswith(("_announced_then_optimized", "_announced_compacted"))

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))

    @cached_property
    def expected(self) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "expected.parquet").sort("id")

    @cached_property
    def weights(self) -> pl.DataFrame | None:
        path = self.folder / "weights.parquet"
        return pl.read_parquet(path) if path.exists() else None

    @property
    def indexed(self) -> list[str]:
        if "indexed" in self.meta:
            return self.meta["indexed"]
        return [spec.partition(":")[0] for spec in self.meta["columnsToIndex"].split(",")]

    @property
    def samples(self) -> dict[float, list[int]]:
        """Ids that the JVM's sample returned, by fraction; repeats left out."""
        return {float(fraction): actual["ids"] for fraction, actual in self.meta["samples"].items()}

    @property
    def commits(self) -> list[list[dict[str, Any]]]:
        """The actions of every version, as they stand in the log."""
        log = sorted((self.path / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in log]


@cache
def open_golden(golden: Golden) -> qbeast.Table:
    """Open a golden table, once: every test goes through all of them."""
    return qbeast.open_table(golden.path)


def read_collection(folder: Path) -> list[Golden]:
    """Return the tables of a folder, at least one of every writer."""
    actual = [Golden(path.parent) for name in WRITERS for path in sorted((folder / name).glob("*/table"))]
    missing = set(WRITERS) - {golden.writer for golden in actual}
    if missing:
        message = f"{folder} holds no golden tables of {', '.join(sorted(missing))}"
        raise AssertionError(message)
    return actual


def find(name: str) -> Golden:
    """Return a table of the bundle by ``writer/name``."""
    golden = Golden(BUNDLE / name)
    assert golden.path.is_dir(), f"{golden.path} is missing"
    return golden


def each(
    holding: Callable[[Golden], object] = bool, *, bundled: Container[str] | None = None
) -> pytest.MarkDecorator:
    """Run a test on every golden table for which `holding` is true; without any it is an error.

    `bundled` names the only ones (``writer/name``) that the fast tests take; the sweep takes all.
    """
    chosen = (
        holding if bundled is None else lambda item: f"{item.writer}/{item.name}" in bundled and holding(item)
    )
    return pytest.mark.parametrize("golden", [*_bundled(chosen), *_collected(holding)])


def _bundled(holding: Callable[[Golden], object]) -> list[Any]:
    actual = [pytest.param(item, id=str(item)) for item in read_collection(BUNDLE) if holding(item)]
    assert actual, "no golden table of the bundle holds what the test wants"
    return actual


def _collected(holding: Callable[[Golden], object]) -> Iterator[Any]:
    folder = os.environ.get(VARIABLE)
    for item in read_collection(Path(folder)) if folder else ():
        if holding(item):
            yield pytest.param(item, id=f"collection-{item}", marks=pytest.mark.sweep)
