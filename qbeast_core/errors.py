"""Every error and warning qbeast raises on purpose.

::

    QbeastError
    ├── InvalidInputError        (also a ValueError)         an argument cannot be used
    │   ├── InputChangedError                                rows read twice were not the same
    │   ├── InvalidColumnsError                              columns to index: unknown, repeated ...
    │   └── SchemaMismatchError                              rows do not fit the table's columns
    ├── InvalidMetadataError     (also a ValueError)         stored metadata breaks the format
    ├── TableExistsError         (also a FileExistsError)    the mode forbids writing to it
    ├── TableNotFoundError       (also a FileNotFoundError)  there is no Delta table
    ├── NotQbeastTableError      (also a ValueError)         a Delta table without Qbeast metadata
    ├── UnsupportedTableError                                a feature or partitioning we must not touch
    ├── DamagedFileError         (also a ValueError)         bytes of a file are not what its format says
    ├── VersionNotFoundError     (also a LookupError)        no such version or no version that old
    ├── CommitConflictError                                  another writer's change forbids ours
    ├── CommitUnknownError                                   nobody can tell whether the commit landed
    ├── StorageError             (also an OSError)           the store refused a read or a write
    ├── MissingDependencyError   (also a RuntimeError)       a program or package is not installed
    └── SessionLostError         (also a RuntimeError)       the Spark session ended before the commit

    QbeastWarning                (a UserWarning)
    ├── AddedColumnWarning                                   a JVM's optimize loses values of an added column
    ├── CorruptTagWarning                                    unreadable index tags: the file is read whole
    ├── DesignEffectWarning                                  equal keys cluster the sample
    │   └── EmptySampleWarning                               no row, where many were to be expected
    ├── HiddenColumnWarning                                  files hold a column that a JVM minds
    └── LostValuesWarning                                    a foreign file holds less than was written

Catch `QbeastError` to catch them all. Codes never change and are listed in docs/errors.md; facts are attributes; errors
survive pickling. What a message advises is in `hint` and `hints` too: argument, value, alternatives.
`changed` tells whether anything was changed nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from qbeast_core.hints import Hint, Message, refusal
from qbeast_core.plain_text import for_people, without_secrets

__all__ = [
    "AddedColumnWarning",
    "CommitConflictError",
    "CommitUnknownError",
    "CorruptTagWarning",
    "DamagedFileError",
    "DesignEffectWarning",
    "EmptySampleWarning",
    "HiddenColumnWarning",
    "InputChangedError",
    "InvalidColumnsError",
    "InvalidInputError",
    "InvalidMetadataError",
    "LostValuesWarning",
    "MissingDependencyError",
    "NotQbeastTableError",
    "QbeastError",
    "QbeastWarning",
    "SchemaMismatchError",
    "SessionLostError",
    "StorageError",
    "TableExistsError",
    "TableNotFoundError",
    "UnsupportedTableError",
    "VersionNotFoundError",
    "changed_before",
    "refuse",
    "shown_cause",
]


def shown_cause(error: BaseException) -> BaseException | None:
    """Return what an error may name as its cause: None where that would print a password or a signature.

    Parameters
    ----------
    error : BaseException
        Of a library that reaches stores.
    """
    text = str(error)
    return error if without_secrets(text) == text else None


@contextmanager
def changed_before(changed: Callable[[], bool | None]) -> Generator[None]:
    """Let errors raised inside tell what the call had done before them, by `QbeastError.changed`.

    Parameters
    ----------
    changed : callable
        Asked when an error comes: whether the table is another now; None: nobody can tell.
    """
    try:
        yield
    except QbeastError as error:
        if error.changed is False:
            error.changed = changed()
        raise


def _rebuild(cls: type[QbeastError], args: tuple[Any, ...], state: dict[str, Any]) -> QbeastError:
    error = cls.__new__(cls, *args)
    error.args = args  # an OSError leaves them to __init__, which is not called here
    error.__dict__.update(state)
    return error


class _Shown:
    """What errors and warnings have in common: messages that may be shown to people, with hints in them."""

    args: tuple[Any, ...]

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_shown, args))

    @property
    def hints(self) -> tuple[Hint, ...]:
        """What the message advises: arguments and calls, by name and value."""
        message = self.args[0] if self.args else ""
        parts = message.parts if isinstance(message, Message) else ()
        return tuple(part for part in parts if isinstance(part, Hint))

    @property
    def hint(self) -> Hint | None:
        """The first of `hints`: the argument that is wrong, what it was given and what it takes, or the cure."""
        return next(iter(self.hints), None)


def _shown(arg: object) -> object:
    if isinstance(arg, Message):
        return arg.for_people()
    return for_people(arg) if isinstance(arg, str) else arg


class QbeastError(_Shown, Exception):
    """Base of every error raised on purpose; catch this one to catch them all.

    Messages quote names, data and other libraries: they hold no password or signature of an address, no colours and
    no control characters; they are one line.
    """

    code: ClassVar[str] = "qbeast"
    """Stable and machine-readable: codes may be added, never renamed."""

    changed: bool | None = False
    """Whether the call changed the table before it failed; None: nobody can tell.

    False for nearly all: a call commits once, at its end, or not at all. True where a call makes several commits, or
    deletes files one by one, and some of that was done; a second call goes on from there.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling ``__init__``, so that errors survive leaving a worker process."""
        return _rebuild, (type(self), self.args, self.__dict__)


class _PathError(QbeastError):
    """An error that is about a place."""

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(message)


class InvalidInputError(QbeastError, ValueError):
    """An argument cannot be used as given; nothing was read or written because of it."""

    code = "invalid-input"

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        self.argument = argument
        super().__init__(message)


def refuse(
    argument: str, problem: str, outcome: str, *, given: object = None, known: Iterable[object] = ()
) -> NoReturn:
    """Raise the error about an argument that cannot be what it was given; see `qbeast_core.hints.refusal`.

    Examples
    --------
    >>> try:
    ...     refuse("mode", "must be one of two", "nothing was written", given="apend", known=["error", "append"])
    ... except InvalidInputError as error:
    ...     error.hint.argument, error.hint.value, error.hint.alternatives, error.changed
    ('mode', 'apend', ('append', 'error'), False)
    """
    raise InvalidInputError(refusal(argument, problem, outcome, given=given, known=known), argument=argument)


class InputChangedError(InvalidInputError):
    """Rows that had to be read twice were not the same the second time."""

    code = "input-changed"

    def __init__(self, message: str, *, rows_before: int = 0, rows_after: int = 0) -> None:
        super().__init__(message, argument="df")
        self.rows_before = rows_before
        self.rows_after = rows_after


class InvalidColumnsError(InvalidInputError):
    """The columns to index are unknown, repeated, not indexable, too many or not those of the table."""

    code = "invalid-columns"

    def __init__(self, message: str, *, columns: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        super().__init__(message, argument="columns")


class SchemaMismatchError(InvalidInputError):
    """The rows do not fit the table's columns; `problems` lists every difference."""

    code = "schema-mismatch"

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message, argument="df")


class InvalidMetadataError(QbeastError, ValueError):
    """Stored metadata does not follow the Qbeast format."""

    code = "invalid-metadata"


class TableExistsError(_PathError, FileExistsError):
    """A table, or something else, is at the path and the mode forbids writing to it."""

    code = "table-exists"


class TableNotFoundError(_PathError, FileNotFoundError):
    """There is no Delta table at the path."""

    code = "table-not-found"


class NotQbeastTableError(_PathError, ValueError):
    """The Delta table at the path carries no Qbeast metadata."""

    code = "not-a-qbeast-table"


class UnsupportedTableError(_PathError):
    """The table uses a feature that this library must not read or write."""

    code = "unsupported-table"

    def __init__(self, message: str, *, path: str, feature: str) -> None:
        self.feature = feature
        super().__init__(message, path=path)


class DamagedFileError(_PathError, ValueError):
    """The bytes of a file are not what its format says: it was cut, overwritten, or is another kind of file.

    Attributes
    ----------
    path : str
        The file.
    place : str
        Where in it, from the outside inwards; empty if that is not known.
    """

    code = "damaged-file"

    def __init__(self, message: str, *, path: str, place: str = "") -> None:
        self.place = place
        super().__init__(message, path=path)


class VersionNotFoundError(_PathError, LookupError):
    """The table has no such version, or none that old."""

    code = "version-not-found"

    def __init__(self, message: str, *, path: str, version: object) -> None:
        self.version = version
        super().__init__(message, path=path)


class CommitConflictError(QbeastError):
    """Another writer's change forbids this commit; nothing of it is visible."""

    code = "commit-conflict"

    def __init__(self, message: str, *, table: str, version: int, attempts: int) -> None:
        self.table, self.version, self.attempts = table, version, attempts
        super().__init__(message)


class CommitUnknownError(QbeastError):
    """The store failed while the commit was written and cannot tell whether it landed."""

    code = "commit-unknown"
    changed = None

    def __init__(self, message: str, *, table: str, version: int, txn_id: str) -> None:
        self.table, self.version, self.txn_id = table, version, txn_id
        super().__init__(message)


class StorageError(_PathError, OSError):
    """The store refused a read or a write: missing rights, full disk, lost network."""

    code = "storage"


class MissingDependencyError(QbeastError, RuntimeError):
    """A program or package that this call needs is not installed where it runs; nothing was done.

    Attributes
    ----------
    dependency : str
        Its name.
    extra : str or None
        The extra of qbeast that brings it: ``"plot"``.
    """

    code = "missing-dependency"

    def __init__(self, message: str, *, dependency: str, extra: str | None = None) -> None:
        self.dependency, self.extra = dependency, extra
        super().__init__(message)


class SessionLostError(QbeastError, RuntimeError):
    """The Spark session that moved the rows ended before the commit; the table is as it was."""

    code = "session-lost"


class QbeastWarning(_Shown, UserWarning):
    """Base of every warning qbeast gives; its messages are like those of `QbeastError`."""


class AddedColumnWarning(QbeastWarning):
    """A table that a JVM uses got a column, and an optimize of that JVM loses values of such columns."""


class CorruptTagWarning(QbeastWarning):
    """Index tags or settings cannot be read, or cannot be true: the files are read whole, no row is lost."""


class HiddenColumnWarning(QbeastWarning):
    """Files hold a column beyond the table's schema, and a JVM that is to use the table minds it."""


class LostValuesWarning(QbeastWarning):
    """A file of another format holds less than was given to its writer, which is known to have failed there."""


class DesignEffectWarning(QbeastWarning):
    """Rows with equal index keys enter a sample together (cluster sampling), and here they are many."""


class EmptySampleWarning(DesignEffectWarning):
    """A sample holds no row where many were to be expected: the index keys are few."""
