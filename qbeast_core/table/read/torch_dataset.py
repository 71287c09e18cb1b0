"""A table as an `IterableDataset` of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.table.read.shuffled import Order, ShuffledBatches

# Not installed where types are checked.
torch: Any = import_module("torch")
_data: Any = import_module("torch.utils.data")

# Returns the batches of an order, from a state on.
Open: TypeAlias = Callable[[Order, Mapping[str, int | str] | None], ShuffledBatches]
Convert: TypeAlias = Callable[[pl.DataFrame], Any]

_STATE: Final = "batches"


class TorchDataset(_data.IterableDataset):  # type: ignore[misc] # pyright: ignore[reportUntypedBaseClass]
    """Shuffled batches for a ``DataLoader`` with ``batch_size=None``, made by `Read.torch`."""

    def __init__(self, open_batches: Open, order: Order, convert: Convert | None) -> None:
        super().__init__()
        self._open, self._order, self._convert = open_batches, order, convert or _to_tensors
        # Shared with workers that stay over epochs.
        self._epoch = torch.tensor(order.epoch).share_memory_()
        self._batches: ShuffledBatches | None = None
        self._resume: Mapping[str, int | str] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Any]:
        """Yield batches of the rows of this rank and this worker of the loader."""
        worker = _data.get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        order = self._order.part(int(self._epoch), number, workers)
        self._batches, self._resume = self._open(order, self._resume), None
        return map(self._convert, self._batches)

    def state_dict(self) -> dict[str, Any]:
        """Return where this iteration is, of this process: a `StatefulDataLoader` collects those of workers."""
        if self._batches is None:
            return {_STATE: self._resume}
        return {_STATE: self._batches.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin where a state was taken."""
        self._resume = state[_STATE]
        if self._resume is not None:
            self.set_epoch(int(self._resume["epoch"]))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the open batches: a worker opens its own."""
        return {**self.__dict__, "_batches": None}


def rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks: by default those of the process group, if there is one."""
    distributed = torch.distributed
    is_group = distributed.is_available() and distributed.is_initialized()
    own, all_ranks = (distributed.get_rank(), distributed.get_world_size()) if is_group else (0, 1)
    return own if rank is None else rank, all_ranks if world_size is None else world_size


def _to_tensors(frame: pl.DataFrame) -> dict[str, Any]:
    """Return a tensor for each column of numbers, and a list of values for each other one.

    Nulls of floats are NaN. Lists of numbers with equal lengths are a tensor of two dimensions.
    """
    return {column.name: _value(column) for column in frame}


def _value(column: pl.Series) -> Any:
    dtype = column.dtype
    if isinstance(dtype, pl.List) and dtype.inner.is_numeric():
        lengths = column.list.len()
        if column.null_count() == 0 and lengths.n_unique() == 1:
            return _tensor(column.explode()).reshape(column.len(), -1)
    if isinstance(dtype, pl.Decimal):
        column = column.cast(pl.Float64)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return _tensor(column)
    return column.to_list()


def _tensor(column: pl.Series) -> Any:
    if column.null_count() and not column.dtype.is_float():
        msg = (
            f"the column {column.name!r} has nulls, and tensors of type {column.dtype} have none. Leave these "
            f"rows out with where='{column.name} IS NOT NULL', the column with columns=, or fill them in convert="
        )
        raise InvalidInputError(msg, argument="convert")
    return torch.from_numpy(np.array(column.to_numpy()))  # a copy that can be written
