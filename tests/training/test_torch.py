"""Tables as datasets of PyTorch: workers, ranks and continued loaders return each row once."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from itertools import chain
from typing import Any

import polars as pl
import pytest

import qbeast

torch: Any = pytest.importorskip("torch")
data: Any = pytest.importorskip("torch.utils.data")
stateful: Any = pytest.importorskip("torchdata.stateful_dataloader")

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")]

ROWS = 30_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("torch") / "t"
    rows = pl.select(id=pl.int_range(ROWS)).with_columns(
        x=pl.col("id") / 7,
        flag=pl.col("id") % 3 == 0,
        name=pl.format("n{}", pl.col("id") % 50),
        vector=pl.concat_list(pl.col("id"), pl.col("id") + 1),
        maybe=pl.when(pl.col("id") % 5 > 0).then(pl.col("id")),
    )
    qbeast.write_table(rows, path, columns=["id", "x"], cube_size=2_000)
    return qbeast.open_table(path)


def read(table: qbeast.Table, **options: Any) -> Any:
    return table.rows(columns=["id", "x"]).torch(**{"batch_rows": 500, "buffer_bytes": 100_000, **options})


def loader(dataset: Any, workers: int, kind: Any = None) -> Any:
    spawned = {"num_workers": workers, "multiprocessing_context": "spawn"} if workers else {}
    return (kind or data.DataLoader)(dataset, batch_size=None, **spawned)


def ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_returns_each_row_once(table: qbeast.Table, workers: int) -> None:
    dataset = read(table)
    epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        epochs.append(ids(loader(dataset, workers)))
        assert sorted(epochs[-1]) == list(range(ROWS))
    assert epochs[0] != epochs[1]
    if workers == 0:
        frames = table.rows(columns=["id", "x"]).shuffled(0, batch_rows=500, buffer_bytes=100_000)
        assert epochs[0] == pl.concat(frames)["id"].to_list()


def test_workers_that_stay_follow_the_epoch(table: qbeast.Table) -> None:
    dataset = read(table)
    kept = data.DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    first = ids(kept)
    dataset.set_epoch(1)
    second = ids(kept)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(ROWS))


def test_ranks_and_workers_divide_the_rows(table: qbeast.Table) -> None:
    ranks = [ids(loader(read(table, rank=rank, world_size=3), rank % 2)) for rank in range(3)]
    assert {len(rank) for rank in ranks} == {ROWS // 3}
    assert sorted(chain(*ranks)) == list(range(ROWS))


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_loader_continues(table: qbeast.Table, workers: int) -> None:
    make = partial(loader, workers=workers, kind=stateful.StatefulDataLoader)
    dataset = read(table)
    dataset.set_epoch(4)
    whole = [batch["id"].tolist() for batch in make(dataset)]
    started = make(read(table, epoch=4))
    batches = iter(started)
    first = [next(batches)["id"].tolist() for _ in range(17)]
    state = started.state_dict()
    resumed = make(read(table))
    resumed.load_state_dict(state)
    assert first + [batch["id"].tolist() for batch in resumed] == whole


def test_batches_are_tensors_and_lists(table: qbeast.Table) -> None:
    batch = next(iter(table.rows(columns=["id", "x", "flag", "name", "vector"]).torch(batch_rows=8)))
    kinds = {name: getattr(value, "dtype", type(value)) for name, value in batch.items()}
    assert kinds == {
        "id": torch.int64,
        "x": torch.float64,
        "flag": torch.bool,
        "name": list,
        "vector": torch.int64,
    }
    assert batch["vector"].tolist() == [[number, number + 1] for number in batch["id"].tolist()]
    with pytest.raises(qbeast.InvalidInputError, match="'maybe' has nulls"):
        next(iter(table.rows(columns=["maybe"]).torch()))
    frames = table.rows(columns=["maybe"]).torch(convert=lambda frame: frame["maybe"].null_count())
    assert sum(frames) == ROWS / 5


FORKING = """
import sys
from torch.utils.data import DataLoader
import qbeast

dataset = qbeast.open_table(sys.argv[1]).rows().torch()
if __name__ == "__main__":
    for batch in DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork"):
        pass
"""


def test_invalid_ranks_are_refused(table: qbeast.Table) -> None:
    for options in ({"world_size": 0}, {"rank": 2, "world_size": 2}, {"rank": -1}):
        with pytest.raises(qbeast.InvalidInputError, match="must be a whole number"):
            table.rows().torch(**options)


def test_forked_workers_are_refused(table: qbeast.Table) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, table.uri]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "was forked" in done.stderr
    assert 'multiprocessing_context="spawn"' in done.stderr
