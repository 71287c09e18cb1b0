"""Batches for training: rows per second, order, bytes and requests, beside other formats for training?

    python -m benchmarks.bench_training

Eight columns of numbers of lineitem (scale 1), by ship date, as time series come; the table is indexed by the three W1
columns. Batches have 1,024 rows. Order: the correlation of the mean ship dates of neighbouring batches (lag-1), and the
deviation of these means over that of a permutation by NumPy; of a fresh table, and of one after 30 appends, updates and
deletes, with buffers of a sixteenth of the rows. The rivals are measured if they are installed: Lance
(random rows, and blocks of a batch), mosaicml-streaming (its files have the rows in the order of the write, shuffled by
blocks), and Hugging Face datasets on Parquet (a shuffled index, and a buffer of 10,000 rows). The slow ones read the
first rows only. None of the rivals reads a Delta table, so each needs a copy of the rows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl

import qbeast
from benchmarks import data, measure, slow_store, tables
from benchmarks.report import Figure, table

COLUMNS = ["l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount", "l_tax"]
DAY = "l_shipdate"
BATCH = 1024
ROW_BYTES = 60  # in memory
FEW = 200  # batches of slow rivals
PLACE = data.CACHE / "training"

Batches = Callable[
    [int], Iterator[np.ndarray]
]  # of an epoch: the day of each row, after all columns were read


def rows() -> pl.DataFrame:
    """Return the rows by day."""
    frame = data.lineitem().select(pl.col(COLUMNS).cast(pl.Float64), pl.col(DAY).to_physical())
    return frame.sort(DAY)


def run() -> list[Figure]:
    path = tables.indexed("training", rows, data.W1_COLUMNS)
    days = qbeast.read_table(path, columns=[DAY])[DAY].to_numpy()
    figures = _rates(path)
    for name, place in {"qbeast": path, "qbeast, kept table": tables.once(PLACE / "kept", _keep)}.items():
        values = qbeast.read_table(place, columns=[DAY])[DAY].to_numpy()
        batches = ours(place, buffer_bytes=len(values) * ROW_BYTES // 16)
        figures += _order(name, batches, values, "none", is_ours=True)
    figures += _bytes(path)
    for name, (package, make) in RIVALS.items():
        if find_spec(package) is not None:
            batches, copy = make()
            figures += _order(
                name,
                batches,
                days,
                f"{measure.folder_bytes(file for file in copy.rglob('*') if file.is_file()) / 1e6:.0f} MB",
            )
    return figures


def _keep(place: Path) -> None:
    """Write half of the rows, append the others in 30 parts, and update and delete some rows after each."""
    frame = rows()
    half = frame.height // 2
    qbeast.write_table(frame[:half], str(place), columns=list(data.W1_COLUMNS), deletion_vectors=True)
    for number, part in enumerate(frame[half:].iter_slices(-(-half // 30))):
        qbeast.write_table(part, str(place), mode="append")
        opened = qbeast.open_table(place)
        opened.update(f"l_suppkey BETWEEN {100 * number} AND {100 * number + 90}", set={"l_tax": "l_tax / 2"})
        opened.delete(f"l_partkey BETWEEN {1_000 * number} AND {1_000 * number + 900}")


def ours(path: Path, **options: object) -> Batches:
    """Return the shuffled batches of a table."""
    opened = qbeast.open_table(path)

    def batches(epoch: int) -> Iterator[np.ndarray]:
        for batch in opened.rows().shuffled(1, batch_rows=BATCH, epoch=epoch, **options):
            yield batch[DAY].to_numpy()

    return batches


def _rates(path: Path) -> list[Figure]:
    opened = qbeast.open_table(path)
    small = ours(path, buffer_bytes=64 << 20)
    seconds = measure.interleaved(
        {
            "read_table": opened.read,
            "whole": lambda: sum(map(len, ours(path)(0))),
            "small": lambda: sum(map(len, small(0))),
        }
    )
    return [
        Figure(
            "time of an epoch over read_table, buffer 256 MiB",
            seconds["whole"] / seconds["read_table"],
            "x",
            2,
        ),
        Figure(
            "time of an epoch over read_table, buffer 64 MiB",
            seconds["small"] / seconds["read_table"],
            "x",
            2,
        ),
    ]


def _bytes(path: Path) -> list[Figure]:
    with slow_store.serving(path.parent, latency_s=0) as store:
        opened = qbeast.open_table(store.uri(path.name), storage_options=store.options)
        opened.rows().head(1)
        store.asked()
        opened.read()
        scan = store.asked()
        for _ in opened.rows().shuffled(1, buffer_bytes=64 << 20):
            pass
        shuffled = store.asked()
    return [
        Figure("bytes of an epoch over a scan, buffer 64 MiB", shuffled.bytes / scan.bytes, "x", 1.2),
        Figure("requests of an epoch over a scan, buffer 64 MiB", shuffled.requests / scan.requests, "x", 2),
    ]


def _order(
    name: str, batches: Batches, days: np.ndarray, copy: str, *, is_ours: bool = False
) -> list[Figure]:
    start = time.perf_counter()
    found = list(batches(0))
    seconds = time.perf_counter() - start
    values = np.concatenate(found).astype(np.float64)
    means = np.array([batch.mean() for batch in found[:-1]])
    lag = float(np.corrcoef(means[:-1], means[1:])[0, 1])
    shuffled = np.random.default_rng(0).permutation(days)[: len(days) // BATCH * BATCH]
    spread = float(means.std() / shuffled.reshape(-1, BATCH).mean(1).std())
    complete = len(values) == len(days)
    note = f"copy of the rows: {copy}" + ("" if complete else f"; {len(values):,} rows read")
    return [
        Figure(f"{name}: million rows per second", len(values) / seconds / 1e6, "M", note=note),
        Figure(f"{name}: lag-1 of batch means", abs(lag), "", 0.08 if is_ours else None),
        Figure(f"{name}: deviation of batch means over a shuffle", spread, "x", 1.1 if is_ours else None),
    ]


def _few(batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    return islice(batches, FEW)


def lance_rows() -> tuple[Batches, Path]:
    """Random rows of a Lance dataset."""
    dataset, place = _lance()

    def batches(epoch: int) -> Iterator[np.ndarray]:
        order = np.random.default_rng(epoch).permutation(dataset.count_rows())
        for at in range(0, len(order), BATCH):
            yield dataset.take(order[at : at + BATCH])[DAY].to_numpy()

    return lambda epoch: _few(batches(epoch)), place


def lance_blocks() -> tuple[Batches, Path]:
    """Blocks of a batch of a Lance dataset, in random order."""
    dataset, place = _lance()

    def batches(epoch: int) -> Iterator[np.ndarray]:
        starts = np.arange(0, dataset.count_rows(), BATCH)
        for at in np.random.default_rng(epoch).permutation(starts):
            yield dataset.take(np.arange(at, min(at + BATCH, dataset.count_rows())))[DAY].to_numpy()

    return batches, place


def _lance():
    import lance  # noqa: PLC0415 - a rival

    place = PLACE / "lance"
    if not place.exists():
        lance.write_dataset(rows().to_arrow(compat_level=pl.CompatLevel.oldest()), str(place))
    return lance.dataset(str(place)), place


def mosaic() -> tuple[Batches, Path]:
    """Samples of mosaicml-streaming, collected into batches."""
    import streaming  # noqa: PLC0415 - a rival

    place = PLACE / "mosaic"
    if not place.exists():
        types = dict.fromkeys([*COLUMNS, DAY], "float64")
        with streaming.MDSWriter(out=str(place), columns=types, compression=None) as writer:
            for row in rows().cast(pl.Float64).iter_rows(named=True):
                writer.write({name: np.float64(value) for name, value in row.items()})

    def batches(epoch: int) -> Iterator[np.ndarray]:
        streaming.base.util.clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(
            local=str(place), shuffle=True, shuffle_seed=epoch, batch_size=BATCH, num_canonical_nodes=1
        )
        samples = iter(dataset)
        while batch := [sample[DAY] for sample in islice(samples, BATCH)]:
            yield np.array(batch)

    return lambda epoch: _few(batches(epoch)), place


def hugging_face(*, buffered: bool) -> tuple[Batches, Path]:
    """Batches of Hugging Face datasets, on a Parquet file of the rows."""
    import datasets  # noqa: PLC0415 - a rival

    place = PLACE / "parquet"
    if not place.exists():
        place.mkdir(parents=True)
        rows().write_parquet(place / "rows.parquet", compression="zstd", row_group_size=100_000)
    dataset = datasets.Dataset.from_parquet(str(place / "rows.parquet"), cache_dir=str(PLACE / "cache"))

    def batches(epoch: int) -> Iterator[np.ndarray]:
        if buffered:
            shuffled = dataset.to_iterable_dataset(num_shards=64).shuffle(seed=epoch, buffer_size=10_000)
        else:
            shuffled = dataset.shuffle(seed=epoch)
        for batch in shuffled.with_format("numpy").iter(batch_size=BATCH):
            yield batch[DAY]

    return lambda epoch: _few(batches(epoch)), PLACE / "cache"


RIVALS: dict[str, tuple[str, Callable[[], tuple[Batches, Path]]]] = {
    "Lance, rows": ("lance", lance_rows),
    "Lance, blocks": ("lance", lance_blocks),
    "mosaicml-streaming": ("streaming", mosaic),
    "Hugging Face, index": ("datasets", lambda: hugging_face(buffered=False)),
    "Hugging Face, buffer": ("datasets", lambda: hugging_face(buffered=True)),
}


if __name__ == "__main__":
    shutil.rmtree(PLACE, ignore_errors=True)
    print(table(run()))
