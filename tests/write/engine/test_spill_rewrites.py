"""Operations in small budgets: each scenario of the contract in many small parts; nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast import open_table
from tests.contract.engines import ENGINES
from tests.contract.scenarios import SCENARIOS, check
from tests.helpers.small_files import resized, small_budget
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
ROWS = pl.DataFrame({"row": range(300)}).with_columns(
    a=pl.col("row") * 7919 % 307 / 307, b=pl.col("row") % 97, text=pl.format("text {}", "row")
)
PARTS = [(1 << 9, 1 << 12), (1 << 9, 1 << 20), (1 << 20, 1 << 12)]
CASES = [pytest.param(name, *sizes, marks=pytest.mark.sweep) for name in SCENARIOS for sizes in PARTS]


@pytest.mark.parametrize(("scenario", "batch_bytes", "load_bytes"), [("write", 1 << 9, 1 << 12), *CASES])
def test_engine_passes_the_scenario_in_small_parts(
    scenario: str, batch_bytes: int, load_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilling = tmp_path / "spilling"
    spilling.mkdir()
    monkeypatch.setenv("QBEAST_SPILL_DIR", str(spilling))
    with (
        small_budget(batch_bytes=batch_bytes, load_bytes=load_bytes),
        resized(min_part_rows=3),
        small_files(),
    ):
        expected = SCENARIOS[scenario].run(ENGINES["spill"], tmp_path / "t")
    assert not list(spilling.iterdir())
    check(SCENARIOS[scenario], tmp_path / "t", expected)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "t"
    qbeast.write_table(ROWS, path, columns=["a", "b"], cube_size=100)
    return path


CHANGES = ROWS.gather_every(40).with_columns(b=-pl.col("b") - 1)
MERGED = pl.concat([ROWS.join(CHANGES, on="row", how="anti"), CHANGES])
NEW = ROWS.with_columns(pl.col("row") + len(ROWS))
CALLS: dict[str, tuple[Callable[[Path, qbeast.Resources], Any], pl.DataFrame]] = {
    "optimize": (lambda path, how: open_table(path, resources=how).optimize(full=True), ROWS),
    "redraw": (lambda path, how: open_table(path, resources=how).optimize(into="new"), ROWS),
    "delete": (
        lambda path, how: open_table(path, resources=how).delete("a > 0.9"),
        ROWS.filter(pl.col("a") <= 0.9),
    ),
    "update": (
        lambda path, how: open_table(path, resources=how).update("b < 5", {"a": "a / 2"}),
        ROWS.with_columns(a=pl.when(pl.col("b") < 5).then(pl.col("a") / 2).otherwise("a")),
    ),
    "append": (
        lambda path, how: qbeast.write_table(NEW.lazy(), path, mode="append", resources=how),
        pl.concat([ROWS, NEW]),
    ),
    "merge": (lambda path, how: open_table(path, resources=how).merge(CHANGES, "row"), MERGED),
}


@pytest.mark.parametrize("call", CALLS)
def test_budget_decides_to_spill(master: Path, tmp_path: Path, call: str) -> None:
    table = copytree(master, tmp_path / "t")
    change, expected = CALLS[call]
    with resized(min_memory_bytes=1, min_moved_bytes=1 << 12):
        done = change(table, qbeast.Resources(memory_bytes=1 << 14, spill_dir=tmp_path))
    assert (done.committed, done.engine, done.spilled_bytes > 0) == (True, "spill", True)
    assert_same_rows(qbeast.read_table(table), expected)
    assert [item.name for item in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("call", CALLS)
def test_too_small_budget_raises_and_changes_nothing(master: Path, tmp_path: Path, call: str) -> None:
    change = CALLS[call][0]
    with pytest.raises(qbeast.InvalidInputError, match="at least 4,194,304"):
        change(master, qbeast.Resources(memory_bytes=1000))
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(qbeast.StorageError, match="there is no folder"):
            change(master, qbeast.Resources(engine="spill", spill_dir=folder))
    assert open_table(master).version == 0
