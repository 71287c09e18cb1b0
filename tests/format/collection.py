"""The golden tables: some beside the tests, all of them where ``QBEAST_GOLDEN`` says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot

__all__ = [
    "BUNDLE",
    "COPIES",
    "FAST",
    "VARIABLE",
    "WRITERS",
    "Golden",
    "commits_of",
    "each",
    "find",
    "load_golden",
    "newest_adds",
    "open_golden",
    "read_collection",
    "swept",
]

BUNDLE = Path(__file__).parent / "tables"
WRITERS = ("legacy", "qbeast-spark-0.7.1", "qbeast-spark-0.8")
VARIABLE = "QBEAST_GOLDEN"
COPIES = ("REPLICATED", "ANNOUNCED")
"""States of files whose rows are in other files too."""
FAST = {
    "legacy/v050_histogram",
    "legacy/v050_mixed_states",
    "qbeast-spark-0.7.1/date_newyork",
    "qbeast-spark-0.7.1/delta_delete",
    "qbeast-spark-0.7.1/lin_decimal25",
    "qbeast-spark-0.7.1/nan_hash",
    "qbeast-spark-0.7.1/old_timestamp",
    "qbeast-spark-0.8/allnull_then_values",
    "qbeast-spark-0.8/convert_parquet_append",
    "qbeast-spark-0.8/dims3",
    "qbeast-spark-0.8/empty",
    "qbeast-spark-0.8/quant_int",
    "qbeast-spark-0.8/quant_string",
}
"""Tables that `make test` asks all questions: each writer, transformation and kind of file."""


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
    def key(self) -> str:
        return f"{self.writer}/{self.name}"

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

    @cached_property
    def commits(self) -> list[list[dict[str, Any]]]:
        """The actions of every version, as they stand in the log."""
        return commits_of(self.path)


def commits_of(path: Path) -> list[list[dict[str, Any]]]:
    """Return the actions of every version of a table, as they stand in the log."""
    logs = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text("utf-8").splitlines()] for log in logs]


def newest_adds(commits: Iterable[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the adds of the live files; of a remove and an add in one commit the add counts (format 11)."""
    live: dict[str, dict[str, Any]] = {}
    for actions in commits:
        for item in (action["remove"] for action in actions if "remove" in action):
            live.pop(item["path"], None)
        live.update((action["add"]["path"], action["add"]) for action in actions if "add" in action)
    return live


@cache
def open_golden(golden: Golden) -> qbeast.Table:
    """Open a golden table, once for all tests of the run."""
    return qbeast.open_table(golden.path)


@cache
def load_golden(golden: Golden) -> Snapshot:
    """Load the newest snapshot of a golden table, once as well."""
    return load_snapshot(golden.path)


@cache
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


def swept(items: Iterable[Any], *, but: Container[Any]) -> list[Any]:
    """Return parameters of a test: `make test` takes those in `but` alone, the sweep the others."""
    return [
        pytest.param(item, marks=() if item in but else pytest.mark.sweep, id=str(item)) for item in items
    ]


def each(
    holding: Callable[[Golden], object] = bool,
    *,
    bundled: Container[str] | None = None,
    fast: Container[str] | None = None,
) -> pytest.MarkDecorator:
    """Run a test on every golden table for which `holding` is true; without any it is an error.

    `bundled` names the only ones of the bundle (``writer/name``) that the test takes, `fast` the only ones that
    `make test` takes: the sweep takes the others, and the collection.
    """
    bundle = [
        item for item in read_collection(BUNDLE) if (bundled is None or item.key in bundled) and holding(item)
    ]
    assert bundle, "no golden table of the bundle holds what the test wants"
    folder = os.environ.get(VARIABLE)
    others = [
        pytest.param(item, id=f"collection-{item}", marks=pytest.mark.sweep)
        for item in (read_collection(Path(folder)) if folder else ())
        if holding(item)
    ]
    quick = [item for item in bundle if fast is None or item.key in fast]
    return pytest.mark.parametrize("golden", swept(bundle, but=quick) + others)
