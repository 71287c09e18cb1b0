"""Clustered tables (feature ``clustering``): which files an optimize may rewrite, and which columns need statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from qbeast_core.log.actions import AddFile, Protocol
from qbeast_core.log.domains.configuration import configuration_of

# Name in `clustering_provider` of files that this library indexed.
PROVIDER: Final = "qbeast"

_DOMAIN: Final = "delta.clustering"
_COLUMNS: Final = "clusteringColumns"


def is_clustered(protocol: Protocol) -> bool:
    """Return whether files name the implementation that clustered them."""
    return "clustering" in (protocol.writer_features or ())


def clustering_columns(domains: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the paths of the clustering columns, by their names in files.

    >>> clustering_columns({"delta.clustering": '{"clusteringColumns":[["year"],["a","b"],"day"]}'})
    [('year',), ('a', 'b'), ('day',)]
    """
    listed = configuration_of(domains, _DOMAIN).get(_COLUMNS, [])
    # Spark writes a list of names for each column, the protocol shows names.
    return [(column,) if isinstance(column, str) else tuple(column) for column in listed]


def with_provider(add: AddFile) -> AddFile:
    """Return a new file with the name of this library if it is indexed."""
    return add if add.blocks is None else add.model_copy(update={"clustering_provider": PROVIDER})


def clustered_by_others(files: pl.DataFrame) -> pl.Series:
    """Return which files another implementation clustered: only that one may cluster them again."""
    return files["clustering_provider"].ne(PROVIDER).fill_null(value=False)
