"""Where in a table's history a reader wants to be."""

from __future__ import annotations

from datetime import UTC, datetime

from qbeast_core.errors import InvalidInputError

__all__ = ["travel"]


def travel(version: object) -> tuple[int | None, datetime | None]:
    """Tell a version number from a time; a time without zone is UTC.

    Parameters
    ----------
    version : int, datetime, str or None
        A number, a time, its ISO 8601 text, or None for the newest version.

    Raises
    ------
    InvalidInputError
        If it is none of these.

    Examples
    --------
    >>> travel(3), travel("2026-01-31")[1].isoformat()
    ((3, None), '2026-01-31T00:00:00+00:00')
    """
    match version:
        case None:
            return None, None
        case bool():
            pass
        case int() if version >= 0:
            return version, None
        case datetime():
            return None, _zoned(version)
        case str():
            try:
                return None, _zoned(datetime.fromisoformat(version))
            except ValueError:
                pass
        case _:
            pass
    msg = f"version must be a number of at least 0, a datetime or its ISO 8601 text, got {version!r}"
    raise InvalidInputError(msg, argument="version")


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
