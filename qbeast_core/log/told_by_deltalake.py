"""What `deltalake` says of a log that it cannot read, in words that help: damage, and features it does not know."""

from __future__ import annotations

import re
from typing import Final

from qbeast_core.hints import Message
from qbeast_core.log.actions import Protocol
from qbeast_core.log.names import commit_path
from qbeast_core.log.refusals import COPIES, copy_of

__all__ = ["cause_told", "damage_told", "feature_told"]

_UNSUPPORTED: Final = re.compile(
    r"unsupported|not supported|catalog-managed|column mapping|variant", re.IGNORECASE
)
_FEATURE: Final = re.compile(r"[Ff]eature '?(\w+)")
_CATALOG: Final = re.compile(r"catalog-managed|max catalog version", re.IGNORECASE)
_PROTOCOL: Final = re.compile(r"Invalid protocol action in the delta log: (.*)", re.DOTALL)
_GAP: Final = re.compile(
    r"found gap: .*?/0*(\d+)\.(?:json|checkpoint).*? -> .*?/0*(\d+)\.json"
    r"|Gap between checkpoint version (\d+) and next commit (\d+)",
    re.DOTALL,
)
_NO_BEGINNING: Final = re.compile(
    r"No (?:table metadata|protocol|table metadata or protocol) found in delta log"
)
_SPAWN: Final = (
    "this process was forked from one that had used the library, whose threads did not come along. Start processes "
    "with the method 'spawn': multiprocessing.get_context('spawn'), or mp_context= of an executor"
)
_NO_CREDENTIALS: Final = (
    "there are no credentials that can be used: give them in storage_options or the environment"
)
_PLAIN_HTTP: Final = "the endpoint is http, which has to be allowed: AWS_ALLOW_HTTP='true' in storage_options"
_NO_STORE: Final = (
    "the store cannot be reached: check the endpoint in storage_options or the environment (AWS_ENDPOINT_URL, a whole "
    "address like https://host:port), and the network"
)
_REFUSED: Final = "the store refuses these credentials: check them, and what they may do"
_CAUSES: Final = (
    (r"Forked process detected", _SPAWN),
    (r"api/token|169\.254\.169\.254|credential", _NO_CREDENTIALS),  # asked of where there is no such service
    (r"URL scheme is not allowed", _PLAIN_HTTP),
    (r"dns error|Connection refused|tcp connect|builder error|Executor has crashed", _NO_STORE),
    (r"denied|Unauthorized|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|InvalidToken", _REFUSED),
)
# What no reader here knows: left is an engine that may.
_FUTURE: Final = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("unknown",))


def damage_told(told: str) -> str | None:
    """Return what is broken in a log and what can be done; None: deltalake's own words have to do.

    Parameters
    ----------
    told : str
        What deltalake says, without its stack trace.

    Examples
    --------
    >>> damage_told("Invalid Checkpoint: Gap between checkpoint version 3 and next commit 5")[:71]
    'version 4 is missing: there is no _delta_log/00000000000000000004.json.'
    """
    gap = _GAP.search(told)
    if gap is not None:
        before, after = (int(number) for number in gap.groups() if number is not None)
        return _missing(before, after)
    broken = _PROTOCOL.search(told)
    if broken is not None:
        return (
            f"its protocol breaks the rules of Delta ({broken[1]}). Nothing was changed. Whoever wrote it has to "
            "mend it"
        )
    if _NO_BEGINNING.search(told):
        return (
            f"its beginning is missing: neither {commit_path(0)} nor a checkpoint says what the table is. Nothing was "
            "changed. Put it back from a copy"
        )
    return None


def cause_told(told: str) -> str | None:
    """Return why the store, or this process, gives no log, and what can be done; None: it is not about them.

    Parameters
    ----------
    told : str
        What deltalake says, without its stack trace.

    Examples
    --------
    >>> cause_told("Forked process detected - current PID is 2 ...")[:23]
    'this process was forked'
    >>> cause_told("Json error: expected {")
    """
    return next((why for pattern, why in _CAUSES if re.search(pattern, told, re.IGNORECASE)), None)


def feature_told(told: str, *, path: str) -> tuple[str, str] | None:
    """Return why a table is refused, and by which name; None: no feature stands in the way.

    Parameters
    ----------
    told : str
        What deltalake says, without its stack trace.
    path : str
        The table.
    """
    if _CATALOG.search(told):
        message = (
            f"{path} cannot be read: a catalog manages it (catalogManaged). Nothing was changed. "
            f"{COPIES['catalogManaged']}"
        )
        return message, "catalogManaged"
    if not _UNSUPPORTED.search(told):
        return None
    found = _FEATURE.search(told)
    what = told if found is None else f"it uses {found[1]}, which neither qbeast nor deltalake knows"
    copy = copy_of(_FUTURE, path)
    message = Message(f"{path} cannot be read: {what}. Nothing was changed. Copy it with ", copy, ".")
    return message, told if found is None else found[1]


def _missing(before: int, after: int) -> str:
    if after - before == 2:
        what, them = f"version {before + 1} is missing: there is no {commit_path(before + 1)}", "it"
    else:
        what, them = f"versions {before + 1} to {after - 1} are missing", "them"
    return (
        f"{what}. Nothing was changed. Put {them} back from a copy; until then version={before} can be opened"
    )
