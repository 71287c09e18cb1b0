"""Metadata domains: clustering by other implementations, and row tracking.

Row tracking gives rows stable ids, and the versions that last changed them. The id of a row is the value of a hidden
column of its file, or, where that is null, `base_row_id` of the file plus the index of the row. The version is found in
the same way. New files get ids above all earlier ones when they are committed, so each attempt of a commit assigns them
again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import AddFile, DomainMetadata, Metadata, Protocol
from qbeast_core.log.files.stats import row_count


def _configuration_of(domains: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the configuration of a domain as JSON; empty if the table does not have the domain.

    >>> _configuration_of({"a": '{"x":1}'}, "a"), _configuration_of({}, "a")
    ({'x': 1}, {})
    """
    text = domains.get(name) or "{}"
    try:
        configuration = orjson.loads(text)
    except ValueError:
        configuration = None
    if not isinstance(configuration, dict):
        problem = f"the metadata domain {name!r} is damaged: {text[:100]!r} is not an object of JSON"
        message = f"{problem}."
        raise InvalidMetadataError(message)
    return cast("dict[str, Any]", configuration)


# Name in `clustering_provider` of files that this library indexed.
PROVIDER: Final = "qbeast"

_CLUSTERING: Final = "delta.clustering"
_COLUMNS: Final = "clusteringColumns"


def is_clustered(protocol: Protocol) -> bool:
    """Return whether files name the implementation that clustered them."""
    return "clustering" in (protocol.writer_features or ())


def clustering_columns(domains: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the paths of the clustering columns, by their names in files.

    >>> clustering_columns({"delta.clustering": '{"clusteringColumns":[["year"],["a","b"],"day"]}'})
    [('year',), ('a', 'b'), ('day',)]
    """
    listed = _configuration_of(domains, _CLUSTERING).get(_COLUMNS, [])
    # Spark writes a list of names for each column, the protocol shows names.
    return [(column,) if isinstance(column, str) else tuple(column) for column in listed]


def with_provider(add: AddFile) -> AddFile:
    """Return a new file with the name of this library if it is indexed."""
    return add if add.blocks is None else add.model_copy(update={"clustering_provider": PROVIDER})


def clustered_by_others(files: pl.DataFrame) -> pl.Series:
    """Return which files another implementation clustered: only that one may cluster them again."""
    return files["clustering_provider"].ne(PROVIDER).fill_null(value=False)


# Key of `tags` in commitInfo: whether all rows that were copied or updated kept their ids.
PRESERVED: Final = "delta.rowTracking.preserved"

_ROW_TRACKING: Final = "delta.rowTracking"
_HIGHEST: Final = "rowIdHighWaterMark"
_FEATURE: Final = "rowTracking"
_ENABLED: Final = "delta.enableRowTracking"
_SUSPENDED: Final = "delta.rowTrackingSuspended"
_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"


class RowIdColumns(NamedTuple):
    """Names of the hidden columns of data files. Delta allows no other column of these names."""

    row_id: str
    version: str

    @property
    def schema(self) -> pl.Schema:
        """Names and types."""
        return pl.Schema(dict.fromkeys(self, pl.Int64()))


class RowIdsOfFile(NamedTuple):
    """The ids of rows for which the hidden columns of a file are null."""

    columns: RowIdColumns
    # Id of the first row.
    base_row_id: int
    version: int

    def filled(self, row: pl.Expr, names: Container[str]) -> list[pl.Expr]:
        """Return the hidden columns among `names` without nulls; `row` is the index of a row in the file.

        >>> ids = RowIdsOfFile(RowIdColumns("id", "version"), base_row_id=5, version=2)
        >>> rows = pl.DataFrame({"id": [9, None], "version": [None, 1], "row": [0, 1]})
        >>> rows.select(ids.filled(pl.col("row"), rows.columns)).rows()
        [(9, 2), (6, 1)]
        """
        fresh = row.cast(pl.Int64) + self.base_row_id
        values = {self.columns.row_id: fresh, self.columns.version: pl.lit(self.version, pl.Int64)}
        return [pl.coalesce(name, value) for name, value in values.items() if name in names]


def assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether each new file needs row ids.

    >>> protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("rowTracking",))
    >>> metadata = Metadata(id="", schema_string="{}")
    >>> suspended = metadata.model_copy(update={"configuration": {"delta.rowTrackingSuspended": "true"}})
    >>> assigns_row_ids(protocol, metadata), assigns_row_ids(protocol, suspended)
    (True, False)
    """
    return _FEATURE in (protocol.writer_features or ()) and not _is_true(metadata, _SUSPENDED)


def keeps_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether rows should keep their ids when they are copied or updated."""
    return assigns_row_ids(protocol, metadata) and _is_true(metadata, _ENABLED)


def row_id_columns(protocol: Protocol, metadata: Metadata) -> RowIdColumns | None:
    """Return the hidden columns of rows that are copied. None: row ids are not kept."""
    row_id, version = (metadata.configuration.get(key) for key in (_ID_COLUMN, _VERSION_COLUMN))
    return RowIdColumns(row_id, version) if row_id and version and keeps_row_ids(protocol, metadata) else None


def hidden_columns(configuration: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the hidden columns that files of a table may have."""
    return frozenset(configuration.get(key, "") for key in (_ID_COLUMN, _VERSION_COLUMN))


def with_row_ids(
    adds: Iterable[AddFile], domains: Mapping[str, str], *, version: int
) -> tuple[list[AddFile], list[DomainMetadata]]:
    """Return the files of a commit with row ids, and the new highest id. Files with row ids keep them.

    >>> new = AddFile(path="a", size=1, modification_time=1, stats='{"numRecords":3}')
    >>> old = AddFile(path="b", size=1, modification_time=1, base_row_id=0, default_row_commit_version=4)
    >>> adds, changed = with_row_ids([new, old], {"delta.rowTracking": '{"rowIdHighWaterMark":9}'}, version=7)
    >>> [(add.base_row_id, add.default_row_commit_version) for add in adds], changed[0].configuration
    ([(10, 7), (0, 4)], '{"rowIdHighWaterMark":12}')
    """
    before = highest = _highest(domains)
    numbered: list[AddFile] = []
    for add in adds:
        fields: dict[str, int] = {}
        if add.base_row_id is None:
            fields["base_row_id"] = highest + 1
            highest += _rows_to_number(add)
        if add.default_row_commit_version is None:
            fields["default_row_commit_version"] = version
        numbered.append(add.model_copy(update=fields))
    configuration = orjson.dumps({_HIGHEST: highest}).decode()
    changed = [DomainMetadata(domain=_ROW_TRACKING, configuration=configuration)] if highest > before else []
    return numbered, changed


def _highest(domains: Mapping[str, str]) -> int:
    return int(_configuration_of(domains, _ROW_TRACKING).get(_HIGHEST, -1))


def _rows_to_number(add: AddFile) -> int:
    count = row_count(add.stats)
    if count is not None:
        return count
    message = (
        f"file {add.path!r} cannot get row ids ({_FEATURE}): its statistics have no number of rows. "
        "Let the writer of the file rewrite it with statistics."
    )
    raise UnsupportedTableError(message, path=add.path, feature=_FEATURE)


def _is_true(metadata: Metadata, key: str) -> bool:
    return metadata.configuration.get(key, "").lower() == "true"
