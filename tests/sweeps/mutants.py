"""Measure the power of the tests: change one operator, constant or branch of the packages, see whether a test fails.

``python -m tests.sweeps.mutants coverage`` records which test runs which line (``build/coverage.sqlite``), then
``python -m tests.sweeps.mutants run -n 50`` changes copies of the tree. Results are in ``build/mutants.jsonl``: the
same command goes on where it was interrupted. The same seed chooses the same mutants, the first 50 of 100 too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
PACKAGES = ("pyspark_qbeast", "qbeast", "qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge")
MAX_MODULES = 60  # those that are imported most
MAX_TESTS = 400
# Tests of rooms of the table that have another name.
FOLDERS = {
    "advise": "maintain/advise",
    "check": "maintain/check",
    "data": "write/data",
    "dml": "change",
    "engine": "write/engine",
    "index": "maintain/index",
    "inspect": "maintain/inspect",
    "maintenance": "maintain",
    "rewrite": "maintain/optimize",
    "snapshot": "read/snapshot",
    "table": "read",
}
NOT_COPIED = (".git", ".venv*", "__pycache__", ".*_cache", ".cache", ".hypothesis", "build", "*-output")
TEXTS = {
    "operator": "+ -> -,- -> +,* -> +,/ -> *,// -> *,% -> *,** -> *,<< -> >>,>> -> <<,& -> |,| -> &,^ -> &",
    "comparison": "== -> !=,!= -> ==,< -> <=,<= -> <,> -> >=,>= -> >,is -> is not,is not -> is,"
    "in -> not in,not in -> in",
    "boolean": "and -> or,or -> and",
}
CHANGES = {old: (kind, new) for kind in TEXTS for old, new in re.findall(r"([^,]+) -> ([^,]+)", TEXTS[kind])}


@dataclass(frozen=True)
class Mutant:
    """One change of one line. Columns are bytes; the statement around it has the lines `first` to `last`."""

    file: str
    line: int
    start: int
    kind: str
    old: str
    new: str
    first: int
    last: int
    in_function: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.start} {self.old} -> {self.new}"

    def apply(self, source: bytes) -> bytes:
        lines, old = source.split(b"\n"), self.old.encode()
        line = lines[self.line - 1]
        assert line.startswith(old, self.start), f"{self} is of another version of the file"
        lines[self.line - 1] = line[: self.start] + self.new.encode() + line[self.start + len(old) :]
        return b"\n".join(lines)


class Finder:
    """Finds every mutant of a module, except in docstrings, annotations, decorators, messages and what raises."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._tree, self._lines = file, ast.parse(source), source.split(b"\n")
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call) and _is_message(node)]
        texts = [text for call in calls for text in call.args]
        self._messages = {text.id for text in texts if isinstance(text, ast.Name)}

    def mutants(self) -> Iterator[Mutant]:
        for node in self._tree.body:
            yield from self._walk(node, node, in_function=False, silent=False)

    def _walk(self, node: ast.AST, at: ast.stmt, *, in_function: bool, silent: bool) -> Iterator[Mutant]:
        if _is_left_out(node):
            return
        at = node if isinstance(node, ast.stmt) else at
        silent = silent or _is_message(node) or bool(_targets(node) & self._messages)
        silent = silent or (isinstance(node, ast.FunctionDef) and "message" in node.name)
        for line, start, kind, old, new in self._changes(node, silent=silent):
            first, last = (line, line) if hasattr(at, "body") else (at.lineno, at.end_lineno or line)
            yield Mutant(self._file, line, start, kind, old, new, first, last, in_function)
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list"}:
                continue
            inside = in_function or (field == "body" and isinstance(node, ast.FunctionDef | ast.Lambda))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child, at, in_function=inside, silent=silent)

    def _changes(self, node: ast.AST, *, silent: bool) -> Iterator[tuple[int, int, str, str, str]]:
        """Yield line, first byte, kind, old and new text of each change of a node itself."""
        operands: Sequence[ast.expr] = ()
        match node:
            case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
                operands = (left, right)
            case ast.Compare(left=left, comparators=others):
                operands = (left, *others)
            case ast.BoolOp(values=operands):
                pass
            case ast.Constant() if node.lineno == node.end_lineno:
                if new := _other(node.value, silent=silent):
                    yield node.lineno, node.col_offset, "constant", self._text(node), new
            case ast.If(test=test) | ast.IfExp(test=test) if test.lineno == test.end_lineno:
                yield test.lineno, test.col_offset, "branch", self._text(test), f"not ({self._text(test)})"
        for left, right in pairwise(operands):
            start = (left.end_col_offset or 0) if left.end_lineno == right.lineno else 0
            between = self._lines[right.lineno - 1][start : right.col_offset].decode()
            old, assign = between.strip(" ()"), "=" if isinstance(node, ast.AugAssign) else ""
            if old.removesuffix(assign) in CHANGES:
                kind, new = CHANGES[old.removesuffix(assign)]
                yield right.lineno, start + between.index(old), kind, old, new + assign

    def _text(self, node: ast.expr) -> str:
        return self._lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Expr(value=ast.Constant()) | ast.JoinedStr():  # before 3.12 at wrong positions
            return True
        case ast.FunctionDef(name="__repr__") | ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test) or "__main__" in ast.unparse(test)
        case ast.keyword(arg=name):  # they change no result
            return name in {"help", "stacklevel", "strict"}
    return bool(_targets(node) & {"__all__", "__slots__"})


def _is_message(node: ast.AST) -> bool:
    """Return whether a node makes an error, raises or warns."""
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return bool(re.search(r"(Error|Warning|\.warn|damaged|unreadable|invalid_sql)$|refus", name))


def _targets(node: ast.AST) -> set[str]:
    """Return the names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name) and not isinstance(node, ast.For)}


def _other(value: object, *, silent: bool) -> str:
    """Return another constant, or nothing."""
    if isinstance(value, bool):
        return repr(not value)
    if isinstance(value, int | float):
        return repr(value + 1 if value + 1 != value else value * 2)
    return repr(f"{value}_") if isinstance(value, str) and not silent else ""


def choose(tree: Path, number: int, seed: int, only: str) -> list[Mutant]:
    """Return mutants, one of each module in turn; in a module each kind of change is as likely."""
    columns = []
    for file in _most_imported(tree, only):
        rng, source = random.Random(f"{seed} {file}"), (tree / file).read_bytes()  # noqa: S311 -- no secrets
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in Finder(file, source).mutants():
            kinds[mutant.kind].append(mutant)
        shuffled = [rng.sample(mutants, len(mutants)) for _, mutants in sorted(kinds.items())]
        rng.shuffle(shuffled)
        mixed = [mutant for row in zip_longest(*shuffled) for mutant in row if mutant]
        columns.append([mutant for mutant in mixed if _compiles(mutant, source)])
    random.Random(seed).shuffle(columns)  # noqa: S311
    return [mutant for row in zip_longest(*columns) for mutant in row if mutant][:number]


def _compiles(mutant: Mutant, source: bytes) -> bool:
    with suppress(SyntaxError, ValueError):
        return bool(compile(mutant.apply(source), mutant.file, "exec"))
    return False


def _most_imported(tree: Path, only: str) -> list[str]:
    paths = [path for package in PACKAGES for path in sorted((tree / package).rglob("*.py"))]
    trees = {path.relative_to(tree).as_posix(): ast.parse(path.read_bytes()) for path in paths}
    names = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in trees}
    counts: Counter[str] = Counter()
    for module in trees.values():
        imports = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
        pairs = [(f"{node.module}.{item.name}", f"{node.module}") for node in imports for item in node.names]
        counts.update({names.get(inner, names.get(outer, "")) for inner, outer in pairs})
    kinds = {file: set(map(type, ast.walk(module))) for file, module in trees.items()}
    files = [file for file in trees if ast.FunctionDef in kinds[file]]
    files.sort(key=lambda file: (-counts[file], file))
    return [file for file in (files if only else files[:MAX_MODULES]) if file.startswith(only)]


def record_coverage(tree: Path, database: Path, options: argparse.Namespace) -> None:
    """Run tests, and record which of them run which line, and the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        settings, report = Path(folder, "coveragerc"), Path(folder, "report.xml")
        database.parent.mkdir(exist_ok=True)
        settings.write_text(f"[run]\nrelative_files = true\ndata_file = {database}\n", "utf-8")
        command = [*_pytest(tree, sweep=options.sweep), f"--junitxml={report}", "-ojunit_family=xunit1"]
        command += ["--cov-context=test", "--cov-report=", f"--cov-config={settings}"]
        command += [f"--cov={package}" for package in PACKAGES]
        command += ["-n", str(options.workers), "--dist=worksteal"]
        tests = options.paths or ["--ignore=tests/spark", "--ignore=tests/foreign/delta"]
        subprocess.run([*command, *tests], cwd=tree, env=_environment(tree), check=False)
        cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 -- made by pytest
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS seconds (test TEXT PRIMARY KEY, seconds REAL)")
        rows = [(_test_id(case), case.get("time")) for case in cases]
        connection.executemany("INSERT OR REPLACE INTO seconds VALUES (?, ?)", rows)


def _test_id(case: ET.Element) -> str:
    file = case.get("file", "")
    inner = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
    return "::".join(part for part in (file, inner, case.get("name")) if part)


def _pytest(tree: Path, *, sweep: bool) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider"]
    command += ["--no-budget"] * (tree / "tests/helpers/budget.py").exists()
    return command + ["--sweep", "--hypothesis-seed=1"] * sweep


def _environment(tree: Path) -> dict[str, str]:
    """Let the packages of the tree win over those that are installed, also in processes that tests start."""
    return os.environ | {"PYTHONPATH": str(tree)}


class Tests:
    """Which tests run a line: first those that are cheap and run few other lines."""

    def __init__(self, tree: Path, database: Path) -> None:
        self._tree, self._connection = tree, sqlite3.connect(database)
        self._lines: Counter[str] = Counter()
        for test, bits in self._rows("1"):
            self._lines[test] += bits.bit_count()
        self._seconds: dict[str, float] = {}
        with suppress(sqlite3.OperationalError):  # another program made the database
            self._seconds.update(self._connection.execute("SELECT * FROM seconds"))

    def of(self, mutant: Mutant) -> list[str]:
        """Return tests; the folder of tests that mirrors the module, if the line is run when it is imported."""
        mask = sum(1 << line for line in range(mutant.first, mutant.last + 1))
        paths = (mutant.file, str(self._tree / mutant.file))
        runs = {test for test, bits in self._rows("path IN (?, ?)", paths) if bits & mask}
        if runs == {""} or (runs and not mutant.in_function):
            return self._mirror(mutant.file)
        key = lambda test: (self._lines[test] * self._seconds.get(test, 1), test)  # noqa: E731
        return sorted(runs - {""}, key=key)[:MAX_TESTS]

    def _rows(self, where: str, values: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
        tables = "line_bits JOIN context ON context.id = context_id JOIN file ON file.id = file_id"
        rows = self._connection.execute(f"SELECT context, numbits FROM {tables} WHERE {where}", values)  # noqa: S608
        return ((test.rpartition("|")[0], int.from_bytes(bits, "little")) for test, bits in rows)

    def _mirror(self, file: str) -> list[str]:
        package, *parts = Path(file).parent.parts
        parts = parts if package == "qbeast_core" else ["spark"] if "spark" in package else []
        if parts[:1] == ["table"]:
            parts = FOLDERS.get(parts[-1], parts[-1]).split("/")
        while parts and not Path(self._tree, "tests", *parts).is_dir():
            parts.pop()
        paths = [Path("tests", *parts)] if parts else sorted((self._tree / "tests").glob("test_*.py"))
        return list(map(str, paths))


class Worker:
    """A copy of the tree, in which one mutant at a time is tested."""

    def __init__(self, tree: Path, folder: Path, options: argparse.Namespace) -> None:
        self._tree, self._options = folder, options
        self._sound: dict[str, bool] = {}
        shutil.copytree(tree, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
        command = [sys.executable, "-c", "import qbeast_core; print(qbeast_core.__file__)"]
        found = subprocess.check_output(command, cwd="/", env=_environment(folder), text=True)
        assert found.startswith(str(folder)), f"another tree wins: {found}"

    def test(self, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        """Return what became of a mutant, and the test that failed."""
        file = self._tree / mutant.file
        original = file.read_bytes()
        _write(file, mutant.apply(original))
        try:
            status, failed = self._run(tests) if tests else ("no tests", "")
        finally:
            _write(file, original)
        if status == "error" and self._run(tests)[0] != "error":
            status = "killed"
        if not failed or self._sound.get(failed):
            return status, failed
        if failed in self._sound:
            return "error", failed
        # Some tests fail in any copy, for example without git: they are left out from then on.
        self._sound[failed] = self._run([failed])[0] == "survived"
        return (status, failed) if self._sound[failed] else self.test(mutant, tests)

    def _run(self, tests: list[str]) -> tuple[str, str]:
        command = [*_pytest(self._tree, sweep=self._options.sweep), "-x", f"--basetemp={self._tree}.tmp"]
        command += tests + [f"--deselect={test}" for test, is_sound in self._sound.items() if not is_sound]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=self._tree, env=_environment(self._tree), stdout=output, start_new_session=True
            )
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._options.timeout)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what tests started
            status = process.wait()
            output.seek(0)
            text = output.read()
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
        statuses = {0: "survived", 4: "error", 5: "no tests"}  # pytest.ExitCode
        return statuses.get(status, "killed"), failed[1] if failed else ""


def _write(file: Path, source: bytes) -> None:
    """Write a module, and remove its bytecode: that of a version of the same second and size counts as new."""
    file.write_bytes(source)
    for path in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        path.unlink()


def run(tree: Path, database: Path, options: argparse.Namespace) -> None:
    """Test the mutants that the results do not have yet, and print a summary of all."""
    lines = options.results.read_text("utf-8").splitlines() if options.results.exists() else []
    results = {result["mutant"]: result for result in map(json.loads, lines)}
    mutants, tests = choose(tree, options.n, options.seed, options.only), Tests(tree, database)
    jobs = [(mutant, tests.of(mutant)) for mutant in mutants if str(mutant) not in results]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as pool:
        workers: queue.Queue[Worker] = queue.Queue()
        for number in range(options.workers if jobs else 0):
            workers.put(Worker(tree, Path(folder, f"tree{number}"), options))

        def work(job: tuple[Mutant, list[str]]) -> None:
            worker, start_s = workers.get(), time.monotonic()
            status, failed = worker.test(*job)
            workers.put(worker)
            result = {"mutant": str(job[0]), "status": status, "test": failed, "tests": len(job[1])}
            results[str(job[0])] = result | {"seconds": round(time.monotonic() - start_s, 1)}
            print(f"{status}: {job[0]}  {failed}", flush=True)
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(results[str(job[0])]) + "\n")

        list(pool.map(work, jobs))
    _print_summary([(mutant, results[str(mutant)]["status"]) for mutant in mutants])


def _print_summary(rows: list[tuple[Mutant, str]]) -> None:
    folders: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, status in rows:
        for folder in (str(Path(mutant.file).parent), "all"):
            folders[folder][status] += 1
    for folder, counts in sorted(folders.items()):
        share = counts["killed"] / counts.total()
        print(f"{share:6.1%} of {counts.total():4} killed in {folder}: {dict(counts)}")
    for mutant, status in sorted(rows, key=lambda row: str(row[0])):
        print(f"{status}: {mutant}\n" * (status != "killed"), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["coverage", "run"])
    parser.add_argument("paths", nargs="*", help="tests of `coverage` (default: all without Spark)")
    parser.add_argument("--coverage", type=Path, default=ROOT / "build/coverage.sqlite", help="the database")
    parser.add_argument("--results", type=Path, default=ROOT / "build/mutants.jsonl", help="JSON lines")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout, with other tests")
    parser.add_argument("--only", default="", help="mutate all modules whose path starts so")
    parser.add_argument("--sweep", action="store_true", help="run the tests of sweeps")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a mutant may take")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=20261126)
    parser.add_argument("-n", type=int, default=50, help="number of mutants")
    options = parser.parse_intermixed_args()
    command = record_coverage if options.command == "coverage" else run
    command(options.tree.resolve(), options.coverage.resolve(), options)


if __name__ == "__main__":
    main()
