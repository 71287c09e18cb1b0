"""Run the shards that have not run for longest, and record each: `make sweep N=2`, `SHARD=9`, `SEED=...`.

A shard is a table of `shards.toml`. The record of shard 9 is `shard-09.json`. Sweeps draw from a new seed each time,
which is printed and recorded; the same commit, shard and seed draw the same examples.
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
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Shard:
    """Tests that run together.

    Attributes
    ----------
    number, name : int, str
        Its key and its name in `shards.toml`.
    needs : tuple of str
        Targets of make that download or install. If one fails, the shard is skipped.
    targets : tuple of str
        Targets of make that are tests themselves, each counted as one.
    tests : tuple of str
        Arguments of pytest: patterns of paths, and options.
    environments : tuple of mapping
        pytest runs once for each, with these variables.
    workers : int
        Processes of pytest; 0 runs the tests in pytest's own.
    """

    number: int
    name: str
    needs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    environments: tuple[Mapping[str, str], ...] = ({},)
    workers: int = 2

    def arguments(self) -> list[str]:
        """Return the options and the paths that exist."""
        paths = [path for pattern in self.tests for path in sorted(ROOT.glob(pattern))]
        options = [text for text in self.tests if text.startswith("-")]
        return [*options, *(str(path.relative_to(ROOT)) for path in paths)]

    @property
    def record(self) -> Path:
        return HERE / f"shard-{self.number:02}.json"

    @property
    def date(self) -> str:
        """The time of the last record, empty without one."""
        return json.loads(self.record.read_text())["date"] if self.record.exists() else ""


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
    return {
        int(number): Shard(int(number), **{key: _frozen(value) for key, value in table.items()})
        for number, table in tables.items()
    }


def stalest(shards: Mapping[int, Shard]) -> list[Shard]:
    """Order shards: first those without a record, then by the time of the record."""
    return sorted(shards.values(), key=lambda shard: (shard.date, shard.number))


def run(shard: Shard, seed: int) -> bool:
    """Run a shard and write its record; return whether nothing failed."""
    label = f"sweep {shard.number} ({shard.name})"
    print(f"{label}: seed {seed}", flush=True)
    for target in shard.needs:
        if _make(target):
            print(f"{label}: SKIPPED, because `make {target}` failed; nothing was recorded", flush=True)
            return True
    start_s = time.monotonic()
    record = Record(
        f"{shard.number} {shard.name}", _commit(), datetime.now(UTC).isoformat(timespec="seconds"), seed
    )
    for target in shard.targets:
        _count(record, target, failed=_make(target) != 0)
    for environment in shard.environments if shard.tests else ():
        _run_tests(shard, environment, seed, record)
    record.seconds = round(time.monotonic() - start_s)
    shard.record.write_text(json.dumps(asdict(record), indent=1) + "\n")
    counts = f"{record.passed} passed, {record.failed} failed, {record.skipped} skipped in {record.seconds} s"
    if not record.failed:
        print(f"{label}: {counts}", flush=True)
        return True
    again = f"make sweep SHARD={shard.number} SEED={seed}"
    print(f"SWEEP {shard.number} FAILED ({shard.name}), seed {seed}: {counts}. Again: {again}", flush=True)
    return False


def _run_tests(shard: Shard, environment: Mapping[str, str], seed: int, record: Record) -> None:
    """Run pytest and add its report, which lists tests that a killed worker did not finish as errors."""
    pytest = [sys.executable, "-m", "pytest", "-q", "--sweep", f"--hypothesis-seed={seed}"]
    workers = ["-n", str(shard.workers), "--dist", "worksteal"] if shard.workers else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [*pytest, *workers, f"--junitxml={report}", *shard.arguments()]
        status = subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False).returncode
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


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
