"""Messages about unsupported tables: the reason, the operations that work, the cure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.features import PREVIEW, feature_of
from qbeast_core.spec.table_config import SAMPLE_BY, TableConfig
from qbeast_core.support.suggestions import convert_call, delta_copy_call

VOID_INSIDE: Final = "the type void inside"
MAPPING_OF_NO_PROTOCOL: Final = "columnMapping that its protocol does not name"
APPEND_ONLY: Final = "delta.appendOnly"

# How a table of these features is copied; the rest is in `_copy_of`.
_COPIES: Final[Mapping[str, str]] = {
    "catalogManaged": (
        "Copy it with Spark that is connected to the catalog, because only the catalog has the newest version: "
        "qbeast_spark_bridge.write_table(spark.table(name), new, columns=[...])."
    ),
    "geospatial": (
        "Spark with Delta 4.4 does not support it either. Copy it with the program that wrote it, without the columns "
        "of points and shapes, or with these as binaries (WKB)."
    ),
    "typeWidening": (
        "Copy it with Spark and Delta: "
        'qbeast_spark_bridge.write_table(spark.read.format("delta").load({path!r}), new, columns=[...]); or remove '
        "the feature: ALTER TABLE ... DROP FEATURE typeWidening."
    ),
    MAPPING_OF_NO_PROTOCOL: (
        "Other readers return nulls for it. Name the feature first, deltalake.DeltaTable({path!r}).alter.add_feature("
        "deltalake.TableFeatures.ColumnMapping, allow_protocol_versions_increase=True)."
    ),
}

_RULES_OF_DELTALAKE: Final = frozenset({"checkConstraints", "invariants"})

# What deltalake's own engine reads.
_DELTALAKE: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType"}
)


def damaged_index(config: TableConfig, *, path: str) -> str:
    """Return the message about a newest revision that cannot be read: what still works, and the cure.

    >>> config = TableConfig.from_configuration({"qbeast.lastRevisionID": "one"})
    >>> "convert_table('t'" in damaged_index(config, path="t")
    True
    """
    if SAMPLE_BY in config.faults:
        return (
            f"the sampling key of {path!r} is not known: {config.faults[SAMPLE_BY]} Reads "
            "without a sample still return every row. Go back to a version that can be read (Table.restore), or "
            'replace the rows with mode="overwrite" and sample_by=[...].'
        )
    if config.last_revision_id is None:
        cure = (
            f"{convert_call(path)} begins a new index and moves no data; or go back to a version that can be read "
            '(Table.restore), or replace the table with mode="overwrite"'
        )
    else:
        cure = (
            f"Table.repair() goes back to revision {config.last_revision_id} and stages what cannot be placed; or go "
            "back to a version that can be read (Table.restore)"
        )
    return (
        f"the newest revision of {path!r} is not known: {config.newest_fault} Whole reads and "
        f"filters still return every row. {cure}."
    )


def refusal(
    features: Sequence[str],
    verb: Literal["read", "written"],
    protocol: Protocol,
    metadata: Metadata,
    *,
    path: str,
) -> str:
    """Return why a table is refused, what works with it here, and what to do."""
    if list(features) == [APPEND_ONLY]:
        return (
            f"{path} allows only appends ({APPEND_ONLY} is true). Appends, optimize and reads "
            f"work. To allow changes of its rows: Table.set_properties({{{APPEND_ONLY!r}: None}})."
        )
    meanings = [(feature, feature_of(feature).meaning) for feature in features]
    used = ", ".join(f"{feature} ({text})" if text else feature for feature, text in meanings)
    cannot = "cannot be read by qbeast" if verb == "read" else "cannot be written in this way by qbeast"
    indexed = any(key.startswith("qbeast.") for key in metadata.configuration)
    works = "Reads and samples work. " if verb == "written" and indexed else ""
    cure = cure_of(features, protocol, path)
    cure = f"Or {cure[0].lower()}{cure[1:]}" if works else cure
    return f"{path} {cannot}: it uses {used}. {works}{cure}"


def unsupported_rule(
    feature: str, name: str, expression: str, reason: str, metadata: Metadata, *, path: str
) -> str:
    """Return why rows of a table cannot be written: a rule of its rows is not understood."""
    keeper = "deltalake or Spark" if feature in _RULES_OF_DELTALAKE else "Spark"
    constraints = sorted(key for key in metadata.configuration if key.startswith("delta.constraints."))
    drop = f", or drop the rule: Table.set_properties({{{constraints[0]!r}: None}})" if constraints else ""
    return (
        f"rows cannot be written to {path}: qbeast does not support the expression {expression!r} of {name!r} "
        f"({feature}): {reason}. Reads, samples, delete, optimize, convert_table and changes of "
        f"properties work. Append with an engine that checks them ({keeper}), and optimize then{drop}."
    )


def cure_of(features: Sequence[str], protocol: Protocol, path: str) -> str:
    """Return what to do with a table that has features which are not supported, as a sentence.

    >>> protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("geospatial",))
    >>> cure_of(["geospatial-preview"], protocol, "old")[:49]
    'Spark with Delta 4.4 does not support it either. '
    """
    for feature in features:
        if feature.startswith(VOID_INSIDE):
            column = feature.removeprefix(VOID_INSIDE).strip()
            return f"Copy the other columns into a new table: {delta_copy_call(path, without=column)}."
        special = _COPIES.get(feature.removesuffix(PREVIEW)) or _COPIES.get(feature.partition(" ")[0])
        if special is not None:
            return special.format(path=path)
    return f"Copy it into a table without: {_copy_of(protocol, path)}."


def _copy_of(protocol: Protocol, path: str) -> str:
    """Return the call that copies a Delta table's rows into a new table."""
    if _DELTALAKE.issuperset(name.removesuffix(PREVIEW) for name in protocol.reader_features or ()):
        return delta_copy_call(path)
    spark = f'spark.read.format("delta").load({path!r})'
    return f"qbeast_spark_bridge.write_table({spark}, new, columns=[...]), where Spark with Delta reads it"
