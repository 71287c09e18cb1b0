"""The errors and warnings of qbeast.

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
    ├── CommitUnknownError                                   it is unknown whether the commit landed
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
survive pickling. `argument`, `value` and `known` name the invalid argument, its value and the values that it accepts.
`changed` says whether the call changed the table before it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NoReturn

from qbeast_core.support.plain_text import for_people, without_secrets
from qbeast_core.support.suggestions import did_you_mean, nearest, similar

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
    "invalid_argument",
    "shown_cause",
    "unknown_columns",
]


_MAX_CHARACTERS: Final = 80


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
    """Errors and warnings, whose messages may be shown to people."""

    args: tuple[Any, ...]

    def __init__(self, *args: object) -> None:
        super().__init__(*(for_people(arg) if isinstance(arg, str) else arg for arg in args))


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

    argument: str | None = None
    """The argument that is invalid, or that can help; None if the error is not about an argument."""

    value: object = None
    """The value of `argument`, if that value is invalid."""

    known: tuple[object, ...] = ()
    """Values that `argument` accepts, the most similar first; empty if they cannot be listed."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling ``__init__``, so that errors survive leaving a worker process."""
        return _rebuild, (type(self), self.args, self.__dict__)


class _PathError(QbeastError):
    """An error about a path."""

    def __init__(self, message: str, *, path: str, argument: str | None = None) -> None:
        self.path, self.argument = path, argument
        super().__init__(message)


class InvalidInputError(QbeastError, ValueError):
    """An argument cannot be used as given; nothing was read or written because of it."""

    code = "invalid-input"

    def __init__(
        self, message: str, *, argument: str | None = None, value: object = None, known: Iterable[object] = ()
    ) -> None:
        self.argument, self.value, self.known = argument, value, nearest(value, known)
        super().__init__(message)


def invalid_argument(
    argument: str,
    problem: str,
    outcome: str,
    *,
    value: object = None,
    known: Iterable[object] = (),
    cure: str = "",
) -> NoReturn:
    """Raise `InvalidInputError` for the value of an argument; by default it suggests a known value that is similar.

    >>> invalid_argument("mode", "must be one of two", "nothing was written", value="apend", known=["append"])
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `mode` must be one of two, not 'apend'; nothing was written. Did you mean...
    """
    known = tuple(known)
    guesses = similar(value, known) if isinstance(value, str) else []
    cure = cure or (f'Did you mean {argument}="{guesses[0]}"?' if guesses else "")
    message = f"`{argument}` {problem}, not {_brief(value)}; {outcome}{cure and f'. {cure}'}"
    raise InvalidInputError(message, argument=argument, value=value, known=known)


def unknown_columns(argument: str, unknown: Sequence[str], known: Iterable[str], outcome: str) -> NoReturn:
    """Raise `InvalidInputError` for names that are not names of columns; it suggests similar ones.

    >>> unknown_columns("on", ["idd"], ["id"], "nothing was changed")
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `on` names no such column(s): ['idd']; there are ['id']; nothing was...
    """
    columns = list(known)
    names = f"`{argument}` names no such column(s): {unknown}; there are {columns}"
    message = f"{names}; {outcome}.{did_you_mean(map(str, unknown), columns)}"
    raise InvalidInputError(message, argument=argument, value=unknown, known=columns)


def _brief(value: object) -> str:
    """Return the start of a value's `repr`, or only its type if it may be large.

    >>> _brief("apend"), _brief(2), _brief(range(9).__iter__())
    ("'apend'", '2', 'a range_iterator')
    """
    if isinstance(value, type):
        return f"a {value.__qualname__}"
    if value is None or isinstance(value, str | bytes | int | float | list | tuple | dict | set):
        text = repr(value)
        return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
    return f"a {type(value).__qualname__}"


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

    def __init__(
        self, message: str, *, columns: Sequence[str] = (), value: object = None, known: Iterable[object] = ()
    ) -> None:
        self.columns = tuple(columns)
        super().__init__(message, argument="columns", value=value, known=known)


class SchemaMismatchError(InvalidInputError):
    """The rows do not fit the table's columns; `problems` lists every difference."""

    code = "schema-mismatch"

    def __init__(self, message: str, *, problems: Sequence[str] = (), argument: str = "df") -> None:
        self.problems = tuple(problems)
        super().__init__(message, argument=argument)


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

    def __init__(self, message: str, *, path: str, feature: str, argument: str | None = None) -> None:
        self.feature = feature
        super().__init__(message, path=path, argument=argument)


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
