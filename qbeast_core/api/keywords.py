"""Keyword arguments that several calls have in common. Each is declared and documented once, here.

A function takes a group as ``**keywords: Unpack[ChangeKeywords]``. Type checkers and editors show the names and types;
so does `inspect.signature`, see `hints_keywords`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from qbeast_core.support.process import ProgressLike


class CommitKeywords(TypedDict, total=False):
    """Keyword arguments of calls that commit to a table.

    Attributes
    ----------
    commit_metadata : mapping of str to str, optional
        Entries to add to the history.
    progress : callable or bool, optional
        Function that is called with a `Progress` at each step. True shows a progress bar in terminals (with rich,
        ``pip install rich``) and notebooks.
    """

    commit_metadata: Mapping[str, str] | None
    progress: ProgressLike


class ChangeKeywords(CommitKeywords, total=False):
    """Keyword arguments of calls that change rows: a write, a delete, an update or a merge.

    Attributes
    ----------
    commit_metadata, progress
        See `CommitKeywords`.
    dry_run : bool, default False
        Change nothing. The result has the numbers and files of the change.
    txn : tuple of str and int, optional
        ``(application id, version)``. If the table has this version of the application or a later one, nothing is
        changed. A job can then be repeated without changing the table twice.
    """

    dry_run: bool
    txn: tuple[str, int] | None
