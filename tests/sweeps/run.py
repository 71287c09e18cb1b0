"""Run the shards that have not run for longest, and record each: `make sweep N=2`, `SHARD=9`, `SEED=...`.

A shard is a table of `shards.toml`. A round is one run of every shard: `round-03.json` holds the records of the third.
Sweeps draw from a new seed each time, which is printed and recorded; the same commit, shard and seed draw the same
examples.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Run:
    """Tests that run together.

    Attributes
    ----------
    needs : tuple of str
        Targets of make that download or install. If one fails, the run is skipped, which the record lists.
    targets : tuple of str
        Targets of make that are tests themselves, each counted as one.
    tests : tuple of str
        Arguments of pytest: patterns of paths, and options.
    environment : mapping
        Variables of pytest.
    workers : int
        Processes of pytest; 0 runs the tests in pytest's own.
    """

    needs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    workers: int = 2

    def arguments(self) -> list[str]:
        """Return the options and the paths that exist."""
        paths = [path for pattern in self.tests for path in sorted(ROOT.glob(pattern))]
        options = [text for text in self.tests if text.startswith("-")]
        return [*options, *(str(path.relative_to(ROOT)) for path in paths)]


@dataclass(frozen=True)
class Shard:
    """The runs of one record, by their number and name in `shards.toml`."""

    number: int
    name: str
    runs: tuple[Run, ...]

    @property
    def date(self) -> str:
        """The time of the last record, empty without one."""
        return max(
            (found[str(self.number)]["date"] for found in rounds() if str(self.number) in found), default=""
        )


@dataclass
class Record:
    """What a run of a shard found."""

    shard: str
    commit: str
    date: str
    seed: int
    seconds: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)


def main() -> int:
    shards = load_shards()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-n", type=int, default=1, help="run as many shards, those first that ran longest ago"
    )
    parser.add_argument("--recorded", action="store_true", help="run no shard that was never recorded")
    parser.add_argument("--shard", type=int, choices=sorted(shards), help="run this shard")
    parser.add_argument("--seed", type=int, help="draw the examples of an earlier run")
    options = parser.parse_args()
    ordered = [shard for shard in stalest(shards) if shard.date or not options.recorded]
    chosen = [shards[options.shard]] if options.shard else ordered[: options.n]
    failed = [
        shard
        for shard in chosen
        if not run(shard, secrets.randbelow(10**9) if options.seed is None else options.seed)
    ]
    return len(failed)


def load_shards() -> dict[int, Shard]:
    tables = tomllib.loads((HERE / "shards.toml").read_text())
    return {int(number): Shard(int(number), table["name"], _runs(table)) for number, table in tables.items()}


def _runs(table: Mapping[str, Any]) -> tuple[Run, ...]:
    return tuple(
        Run(**{key: tuple(value) if isinstance(value, list) else value for key, value in run.items()})
        for run in table["runs"]
    )


def rounds(folder: Path = HERE) -> list[dict[str, dict[str, Any]]]:
    """Return the records of each round by shard, the oldest round first."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("round-*.json"))]


def add_record(number: int, record: Record, shards: int, folder: Path = HERE) -> None:
    """Add a record to the round that is not complete, or to a new one."""
    found = rounds(folder)
    if not found or len(found[-1]) >= shards:
        found.append({})
    found[-1][str(number)] = asdict(record)
    text = json.dumps(dict(sorted(found[-1].items(), key=lambda item: int(item[0]))), indent=1)
    (folder / f"round-{len(found):02}.json").write_text(text + "\n")


def stalest(shards: Mapping[int, Shard]) -> list[Shard]:
    """Order shards: first those without a record, then by the time of the record."""
    return sorted(shards.values(), key=lambda shard: (shard.date, shard.number))


def run(shard: Shard, seed: int) -> bool:
    """Run a shard and write its record; return whether nothing failed."""
    label = f"sweep {shard.number} ({shard.name})"
    print(f"{label}: seed {seed}", flush=True)
    start_s = time.monotonic()
    record = Record(shard.name, _commit(), datetime.now(UTC).isoformat(timespec="seconds"), seed)
    for one in shard.runs:
        lacking = [target for target in one.needs if _make(target)]
        if lacking:
            print(f"{label}: SKIPPED a run, because `make {lacking[0]}` failed", flush=True)
            record.unavailable.append(lacking[0])
            continue
        for target in one.targets:
            _count(record, target, failed=_make(target) != 0)
        if one.tests:
            _run_tests(one, seed, record)
    record.seconds = round(time.monotonic() - start_s)
    add_record(shard.number, record, len(load_shards()))
    counts = f"{record.passed} passed, {record.failed} failed, {record.skipped} skipped in {record.seconds} s"
    if not record.failed:
        print(f"{label}: {counts}", flush=True)
        return True
    again = f"make sweep SHARD={shard.number} SEED={seed}"
    print(f"SWEEP {shard.number} FAILED ({shard.name}), seed {seed}: {counts}. Again: {again}", flush=True)
    return False


def _run_tests(run: Run, seed: int, record: Record) -> None:
    """Run pytest and add its report, which lists tests that a killed worker did not finish as errors."""
    pytest = [sys.executable, "-m", "pytest", "-q", "--sweep", f"--hypothesis-seed={seed}"]
    workers = ["-n", str(run.workers), "--dist", "worksteal"] if run.workers else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [*pytest, *workers, f"--junitxml={report}", *run.arguments()]
        status = subprocess.run(command, cwd=ROOT, env=os.environ | run.environment, check=False).returncode
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314 -- made by pytest
    kinds = [{child.tag for child in case} for case in cases]
    record.skipped += sum("skipped" in kind for kind in kinds)
    for case, kind in zip(cases, kinds, strict=True):
        if "skipped" not in kind:
            name = f"{case.get('classname')}::{case.get('name')}"
            _count(record, name, failed=bool(kind & {"failure", "error"}))
    if status and not record.failed:
        _count(record, f"pytest ended with status {status}", failed=True)


def _count(record: Record, name: str, *, failed: bool) -> None:
    record.passed += not failed
    record.failed += failed
    record.failures += [name] * failed


def _make(target: str) -> int:
    return subprocess.run(["make", "--no-print-directory", target], cwd=ROOT, check=False).returncode


def _commit() -> str:
    """Return the commit, with a plus sign if files other than records differ from it."""
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    others = ["git", "diff", "--quiet", "HEAD", "--", ".", ":!tests/sweeps"]
    return commit + "+" * subprocess.run(others, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
