"""Count what one call passes through: modules, functions, kinds of records, and steps that are done again.

``make journeys`` prints a table. The fewer names stand between a call and its result, the sooner a reader finds them.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
from pydantic import BaseModel

import qbeast

PACKAGES = ("qbeast", "qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge")
ROOT = Path(__file__).parents[1]
# Once per call is enough for each.
ONCE = (
    "resolve_location",
    "from_configuration",
    "open_store",
    "check_readable",
    "declared_rules",
    "rules_of",
    "parse_condition",
    "understand",
)
ROWS = pl.DataFrame({"id": range(20_000), "price": [i % 97 / 7 for i in range(20_000)]})


@dataclass
class Journey:
    """What a call passed through."""

    files: set[str] = field(default_factory=set[str])
    functions: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    records: set[str] = field(default_factory=set[str])
    steps: Counter[str] = field(default_factory=Counter[str])

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call of a function; see `sys.setprofile`."""
        if event != "call":
            return
        code = frame.f_code
        package, _, inner = code.co_filename.removeprefix(f"{ROOT}/").partition("/")
        if package in PACKAGES and inner:
            self.files.add(code.co_filename)
            self.functions.add((code.co_filename, code.co_firstlineno))
            if code.co_name in ONCE:
                self.steps[code.co_name] += 1
        elif code.co_name in {"__init__", "__new__"}:  # made for a dataclass or a named tuple, or of pydantic
            self._note_record(next(iter(frame.f_locals.values()), None))

    def _note_record(self, made: object) -> None:
        kind = made if isinstance(made, type) else type(made)
        is_record = is_dataclass(kind) or issubclass(kind, BaseModel) or hasattr(kind, "_fields")
        if is_record and kind.__module__.partition(".")[0] in PACKAGES:
            self.records.add(f"{kind.__module__}.{kind.__qualname__}")

    @property
    def again(self) -> dict[str, int]:
        """Steps that were done more than once, and how often."""
        return {name: count for name, count in self.steps.most_common() if count > 1}

    def __str__(self) -> str:
        again = ", ".join(f"{name} {count}" for name, count in self.again.items())
        return f"{len(self.files):8} {len(self.functions):10} {len(self.records):8}  {again}"


@contextmanager
def counted() -> Generator[Journey]:
    """Count what the calls inside pass through, in all threads that begin inside."""
    journey = Journey()
    threading.setprofile(journey.note)
    sys.setprofile(journey.note)
    try:
        yield journey
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def journeys(folder: Path, *, warm: bool = False) -> dict[str, Journey]:
    """Return the journeys of usual calls, in this order, on one table."""
    if not warm:
        journeys(folder / "first", warm=True)  # imports are not part of a call
    path = folder / "table"
    change = ROWS.head(50).with_columns(price=pl.lit(1.0))
    calls: dict[str, Callable[[], Any]] = {
        "write_table, new": lambda: qbeast.write_table(ROWS, path, columns=["id", "price"]),
        "write_table, append": lambda: qbeast.write_table(ROWS.head(100), path, mode="append"),
        "read_table": lambda: qbeast.read_table(path, where="price < 3", sample=0.5),
        "delete": lambda: qbeast.open_table(path).delete("id < 5000"),
        "update": lambda: qbeast.open_table(path).update("id = 7000", {"price": "price + 1000"}),
        "merge": lambda: qbeast.open_table(path).merge(change, on="id"),
        "optimize": lambda: qbeast.open_table(path).optimize(full=True),
    }
    found = {}
    for name, call in calls.items():
        with counted() as found[name]:
            call()
    return found


def main() -> None:
    print(f"{'':20}{'modules':>8} {'functions':>10} {'records':>8}  more than once")
    with tempfile.TemporaryDirectory() as folder:
        for name, journey in journeys(Path(folder)).items():
            print(f"{name:20}{journey}")


if __name__ == "__main__":
    main()
