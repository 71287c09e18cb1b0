"""Memory and temporary files of a call."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, cast

from qbeast_core.errors import invalid_argument

EngineName: TypeAlias = Literal["auto", "memory", "spill"]

_FOLDER_VARIABLE: Final = "QBEAST_SPILL_DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of this machine that a call may use: memory, and a folder for temporary files.

    Attributes
    ----------
    memory_bytes : int, optional
        Memory that the call may add to the process, 4 MiB or more. By default the environment variable
        ``QBEAST_MEMORY_BYTES`` (such as ``2GiB``), or half of the memory of the machine or its cgroup. It includes what
        Python and the libraries need, about 140 MiB, so a smaller budget is exceeded. It does not include the memory
        of a query that filters, sorts or joins before it returns the rows.
    spill_dir : path-like, optional
        Folder for temporary files, which need at most twice the size of the rows. By default the environment variable
        ``QBEAST_SPILL_DIR``, or the temporary folder of the system. The files are removed when the call ends. Files of
        a killed process are removed by the next call that spills.
    engine : {"auto", "memory", "spill"}, default "auto"
        ``"memory"`` keeps the rows in memory, ``"spill"`` sorts them through temporary files, ``"auto"`` uses memory
        if the estimated need fits `memory_bytes`. The tables are equally good.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> small = qbeast.Resources(memory_bytes=64 << 20, engine="spill")
    >>> rows = pl.DataFrame({"id": range(1000)})
    >>> qbeast.write_table(rows, "ids", columns=["id"], resources=small).engine
    'spill'
    """

    memory_bytes: int | None = None
    spill_dir: str | os.PathLike[str] | None = None
    engine: EngineName = "auto"


def combined(
    resources: Resources | None,
    memory_bytes: int | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> Resources:
    """Return the resources of a call. `memory_bytes` and `spill_dir` override the values of `resources`.

    >>> combined(Resources(memory_bytes=8 << 20, engine="spill"), memory_bytes=16 << 20)
    Resources(memory_bytes=16777216, spill_dir=None, engine='spill')
    """
    if not isinstance(cast("object", resources), Resources | None):
        problem = "must be a qbeast.Resources, such as qbeast.Resources(memory_bytes=2 << 30)"
        invalid_argument("resources", problem, value=resources)
    chosen = resources or Resources()
    if memory_bytes is not None:
        chosen = replace(chosen, memory_bytes=memory_bytes)
    return chosen if spill_dir is None else replace(chosen, spill_dir=spill_dir)


def spill_folder_of(resources: Resources) -> str | os.PathLike[str] | None:
    """Return the folder for temporary files. None: the folder of the system."""
    return (
        resources.spill_dir if resources.spill_dir is not None else os.environ.get(_FOLDER_VARIABLE) or None
    )
