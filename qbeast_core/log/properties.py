"""Delta's own table properties that may be set here: a commit adds the features that they need to the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

_HOURS: Final = {
    "week": 168.0,
    "day": 24.0,
    "hour": 1.0,
    "minute": 1 / 60,
    "second": 1 / 3600,
    "millisecond": 1 / 3_600_000,
    "microsecond": 1 / 3_600_000_000,
}
_PERIOD: Final = rf"(\d+)\s+({'|'.join(_HOURS)})s?"

_BOOLEAN: Final = ("true or false", "true|false")
_COUNT: Final = ("a whole number of at least 1", r"0*[1-9]\d{0,8}")
_INTERVAL: Final = ("a time like 'interval 30 days'", rf"(?:interval\s+)?{_PERIOD}(?:\s+{_PERIOD})*")

# Compression of new data files.
COMPRESSION: Final = "delta.parquet.compression.codec"

Codec: TypeAlias = Literal["zstd", "snappy", "gzip", "none"]

_CODECS: Final[Mapping[str, Codec]] = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "none": "none",
    "uncompressed": "none",
}

# What each of them takes, in words and as a pattern of the lower-case text.
SETTABLE: Final[Mapping[str, tuple[str, str]]] = {
    "delta.appendOnly": _BOOLEAN,
    "delta.autoOptimize.autoCompact": ("true, false, auto or legacy", "true|false|auto|legacy"),
    "delta.autoOptimize.optimizeWrite": _BOOLEAN,
    "delta.checkpoint.writeStatsAsJson": _BOOLEAN,
    "delta.checkpoint.writeStatsAsStruct": _BOOLEAN,
    "delta.checkpointInterval": _COUNT,
    "delta.dataSkippingNumIndexedCols": ("a whole number of at least -1", r"-1|\d{1,9}"),
    "delta.dataSkippingStatsColumns": ("names of columns", "(?s:.*)"),
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.enableChangeDataFeed": _BOOLEAN,
    "delta.enableDeletionVectors": _BOOLEAN,
    "delta.enableExpiredLogCleanup": _BOOLEAN,
    "delta.logRetentionDuration": _INTERVAL,
    COMPRESSION: ("one of zstd, snappy, gzip and uncompressed", "|".join(_CODECS)),
    "delta.randomizeFilePrefixes": _BOOLEAN,
    "delta.randomPrefixLength": _COUNT,
    "delta.setTransactionRetentionDuration": _INTERVAL,
    "delta.targetFileSize": ("a number of bytes, or a size like 128mb", r"0*[1-9]\d*\s*(?:[kmgtp]i?)?b?"),
    "delta.tuneFileSizesForRewrites": _BOOLEAN,
}


def expected_value(key: str, value: str) -> str | None:
    """Return the valid values in words if `value` is invalid; None: it is valid, or the key is not Delta's own.

    >>> expected_value("delta.appendOnly", "maybe"), expected_value("delta.appendOnly", "True")
    ('true or false', None)
    """
    words, pattern = SETTABLE.get(key, ("", "(?s:.*)"))
    return None if re.fullmatch(pattern, value.lower(), re.ASCII) else words


def codec_of(configuration: Mapping[str, str]) -> Codec:
    """Return the compression of new data files. A codec that not all readers know counts as none chosen: zstd.

    >>> codec_of({COMPRESSION: "UNCOMPRESSED"}), codec_of({COMPRESSION: "lzo"}), codec_of({})
    ('none', 'zstd', 'zstd')
    """
    return _CODECS.get(configuration.get(COMPRESSION, "").strip().lower(), "zstd")


def stored_codec(codec: Codec) -> str:
    """Return the value of the property for a compression."""
    return "uncompressed" if codec == "none" else codec


def interval_hours(text: str) -> float | None:
    """Return the hours of an interval; None: the text is not an interval.

    >>> interval_hours("interval 2 days 6 hours"), interval_hours("1 week"), interval_hours("a while")
    (54.0, 168.0, None)
    """
    plain = text.strip().lower()
    if re.fullmatch(_INTERVAL[1], plain, re.ASCII) is None:
        return None
    return sum(int(count) * _HOURS[unit] for count, unit in re.findall(_PERIOD, plain, re.ASCII))
