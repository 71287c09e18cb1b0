"""The table features of Delta: which of them this library supports, and their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

# The largest change of a commit: new rows; the same rows in other files or with other tags; a new schema;
# properties.
Brings: TypeAlias = Literal["rows", "files", "columns", "settings"]

# The first version of readers, and of writers, that knows features by their names.
NAMED_READER: Final = 3
NAMED_WRITER: Final = 7
# At the end of the name of a feature that is not final.
PREVIEW: Final = "-preview"


class Feature(NamedTuple):
    """Facts about a feature; the defaults are those of an unknown one."""

    # Meaning in words, for messages.
    meaning: str = ""
    # "read": tables with it are read and written; "written": the same, but the feature binds writers alone.
    support: Literal["read", "written", "none"] = "none"
    # The first writer version with it, from before features had names.
    since: int = NAMED_WRITER


FEATURES: Final[Mapping[str, Feature]] = {
    "allowColumnDefaults": Feature("values for columns that new rows lack", "written"),
    "appendOnly": Feature("", "written", since=2),
    "catalogManaged": Feature("commits go through a catalog"),
    "catalogOwned": Feature("commits go through a catalog"),  # its name in previews
    "changeDataFeed": Feature("", "written", since=4),
    "checkConstraints": Feature("rules that new rows have to meet", "written", since=3),
    "clustering": Feature("", "written"),
    "collations": Feature("", "written"),
    "columnMapping": Feature("", "read", since=5),
    "coordinatedCommits": Feature("commits go through a coordinator"),
    "deletionVectors": Feature("", "read"),
    "domainMetadata": Feature("", "written"),
    "generatedColumns": Feature("columns computed from others", "written", since=4),
    "geospatial": Feature("columns of points and shapes"),
    "icebergCompatV1": Feature("", "written"),
    "icebergCompatV2": Feature("", "written"),
    "identityColumns": Feature("numbers that the writer gives", "written", since=6),
    "inCommitTimestamp": Feature("", "written"),
    "invariants": Feature("rules that new rows have to meet", "written", since=2),
    "materializePartitionColumns": Feature("", "written"),
    "rowTracking": Feature("", "written"),
    "timestampNtz": Feature("", "read"),
    "typeWidening": Feature("older files hold narrower types", "read"),
    "v2Checkpoint": Feature("", "read"),
    "vacuumProtocolCheck": Feature("", "read"),
    "variantShredding": Feature(
        "files that store parts of variants apart", "read"
    ),  # refused are such files alone
    "variantType": Feature("", "read"),
}


def feature_of(name: str) -> Feature:
    """Return the facts about a feature; a preview is like the final feature.

    >>> feature_of("new").support, feature_of("variantType-preview").support
    ('none', 'read')
    """
    return FEATURES.get(name.removesuffix(PREVIEW), Feature())
