"""Engines that `make sweep` installs run the blocks of docs/other-engines.md, and read no more than these ask for."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.table.read.planner import Planner
from tests.helpers.snippets import ROOT, blocks_of_engine
from tests.helpers.tables import assert_same_rows, sampled, small_files

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore")]

PAGE = ROOT / "docs" / "other-engines.md"
NUMBER = pl.col("id")
TRIPS = pl.DataFrame({"id": range(200_000)}).with_columns(
    fare=pl.when(NUMBER % 11 > 0).then(NUMBER * 7919 % 10_007 / 100),
    city=pl.when(NUMBER % 5 > 0).then(pl.format("New York {}", NUMBER % 3)),
)
DELETED = NUMBER % 13 == 5
COLUMNS = ["id", "fare", "city"]
SAMPLE = sampled(TRIPS, ["id", "fare"], 0.125)
CONDITION = re.compile(r"fare < 5 AND sample < (REAL '0\.125'|0\.125)")
KINDS: dict[str, dict[str, Any]] = {
    "sampled": {"sample_column": "sample"},
    "plain": {},
    "vectors": {"sample_column": "sample", "deletion_vectors": True},
    "partitions": {"sample_column": "sample", "partition_by": ["city"]},
    "plain_partitions": {"partition_by": ["city"]},
}
REFUSED = "[Dd]eletion ?[Vv]ector"
STARTED: dict[str, Any] = {}
"""Names of the blocks that start an engine."""
ENGINES = ["ibis", "datafusion", "daft", "ray", "dask", "sail"]
MODULES = {"ibis": "pyarrow_hotfix", "sail": "pysail"}  # what the sweep installs


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("engines")
    for kind, options in KINDS.items():
        with small_files(file_rows=25_000, page_rows=1000):
            table = root / kind / "trips"
            qbeast.write_table(TRIPS, table, columns=["id", "fare"], cube_size=4000, **options)
            if kind == "vectors":
                qbeast.open_table(table).delete(DELETED)
                assert qbeast.open_table(table).metrics().health.hidden_rows == TRIPS.filter(DELETED).height
    return root


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Import an engine and start it, or skip its tests."""
    name: str = request.param
    module: Any = pytest.importorskip(MODULES.get(name, name))
    if name == "ray":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
            module.init(
                num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False
            )
            yield name
            module.shutdown()
        return
    for text in blocks_of_engine(PAGE, name):
        if "cheap" not in text:
            exec(text, STARTED)  # noqa: S102 - our own text is what is tested
    yield name
    if "server" in STARTED:
        STARTED["spark"].stop()
        STARTED["server"].stop()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[pl.Expr | None, Any, list[str]]]:
    """The filters, samples and columns that reads are planned by from now on."""
    reads: list[tuple[pl.Expr | None, Any, list[str]]] = []
    row_filter = Planner.row_filter

    def spied(self: Planner, plan: Any, columns: list[str]) -> Any:
        reads.append((plan.predicate, plan.weights, list(columns)))
        return row_filter(self, plan, columns)

    monkeypatch.setattr(Planner, "row_filter", spied)
    return reads


def frame_of(answer: Any) -> pl.DataFrame:
    """Return the rows of an engine in Polars."""
    if hasattr(answer, "to_arrow_refs"):  # of Ray
        import ray  # noqa: PLC0415 -- installed by sweeps

        answer = pl.concat([pl.DataFrame(block) for block in ray.get(answer.to_arrow_refs())])
    if hasattr(answer, "compute"):  # of Dask
        answer = answer.compute(scheduler="threads")
    frame = pl.DataFrame(answer)
    return frame.select(COLUMNS).cast(dict(TRIPS.schema))


def run(text: str, names: dict[str, Any]) -> pl.DataFrame:
    exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102 - our own text is what is tested
    return frame_of(names["cheap"])


def names_of_page() -> dict[str, Any]:
    return {**STARTED, "pl": pl, "qbeast": qbeast, "table": qbeast.open_table("trips")}


def queries_of(engine: str) -> list[str]:
    return [text for text in blocks_of_engine(PAGE, engine) if "cheap" in text]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_block_returns_rows_of_polars(
    engine: str, kind: str, tables: Path, planned: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tables / kind)
    expected = SAMPLE.filter(pl.col("fare") < 5).filter(~DELETED if kind == "vectors" else pl.lit(value=True))
    assert expected["city"].null_count()
    for text in queries_of(engine):
        planned.clear()
        by_engine, names = "sample <" in text, names_of_page()
        if by_engine and kind == "vectors" and engine in {"datafusion", "daft"}:
            with pytest.raises(Exception, match=REFUSED):
                run(text, names)
        elif not by_engine or "sample_column" in KINDS[kind]:
            assert_same_rows(run(text, names), expected, "id")
            assert by_engine == (not planned)
        for predicate, weights, columns in planned:
            assert_same_rows(TRIPS.filter(predicate), TRIPS.filter(pl.col("fare") < 5), "id")
            assert weights.probability == 0.125
            assert columns == COLUMNS


def bytes_of(call: Callable[[], object]) -> int:
    """Return how many bytes this process reads for a call, once all modules are loaded."""
    counters, counts = Path("/proc/self/io"), []
    if not counters.exists():
        pytest.skip("the system does not count the bytes that a process reads")
    for _ in range(2):
        before = int(counters.read_text().split()[1])
        call()
        counts.append(int(counters.read_text().split()[1]) - before)
    return counts[-1]


@pytest.mark.parametrize("engine", ["datafusion", "daft", "sail"], indirect=True)
@pytest.mark.parametrize("kind", ["sampled", "partitions"])
def test_engine_of_its_own_skips_bytes(
    engine: str, kind: str, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tables / kind)
    text, names = queries_of(engine)[0], names_of_page()

    def reading(condition: str) -> int:
        return bytes_of(lambda: run(CONDITION.sub(condition, text), names))

    whole = reading("id >= 0")
    assert reading("id < 1000") < 0.8 * whole or "partition_by" in KINDS[kind]
    assert reading("sample < REAL '0.01'" if engine == "datafusion" else "sample < 0.01") < 0.2 * whole
    assert reading("city = 'New York 1'") < 0.5 * whole or "partition_by" not in KINDS[kind]


@pytest.mark.parametrize("engine", ["sail"], indirect=True)
def test_sample_of_decimals_on_sail_is_that_of_spark(engine: str, tmp_path: Path) -> None:
    """The hash of a decimal is another in Sail, so Python reads the sample."""
    assert engine in ENGINES
    bridge: Any = importlib.import_module("qbeast_spark_bridge")
    rows = TRIPS[:5000].with_columns(fare=pl.col("fare").cast(pl.Decimal(12, 2)))
    qbeast.write_table(rows, tmp_path / "t", columns=["fare"])
    expected = qbeast.read_table(tmp_path / "t", sample=0.5)
    actual = bridge.read_table(STARTED["spark"], tmp_path / "t", sample=0.5).toArrow()
    assert 1000 < expected.height < 4000
    assert_same_rows(pl.DataFrame(actual), expected, "id")
