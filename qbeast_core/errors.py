"""The errors and warnings of qbeast.

::

    QbeastError
    ├── InvalidInputError        (also a ValueError)         an argument cannot be used
    │   ├── InputChangedError                                rows read twice were not the same
    │   ├── InvalidColumnsError                              columns to index: unknown, repeated ...
    │   ├── SchemaMismatchError                              rows do not fit the table's columns
    │   └── ConstraintViolationError                         rows break a rule of the table
    ├── InvalidMetadataError     (also a ValueError)         stored metadata breaks the format
    ├── TableExistsError         (also a FileExistsError)    the mode forbids writing to it
    ├── TableNotFoundError       (also a FileNotFoundError)  there is no Delta table
    ├── NotQbeastTableError      (also a ValueError)         a Delta table without Qbeast metadata
    ├── UnsupportedTableError                                a feature or partitioning that is not supported
    ├── DamagedFileError         (also a ValueError)         bytes of a file break its format
    ├── VersionNotFoundError     (also a LookupError)        no such version or no version that old
    ├── CommitConflictError                                  a commit of another writer conflicts
    ├── CommitUnknownError                                   it is unknown whether the commit exists
    ├── MemoryBudgetError        (also a MemoryError)        the metadata of all files would not fit into memory
    ├── StorageError             (also an OSError)           the store refused a read or a write
    ├── MissingDependencyError   (also a RuntimeError)       a program or package is not installed
    └── SessionLostError         (also a RuntimeError)       the Spark session ended before the commit

    QbeastWarning                (a UserWarning)
    ├── AddedColumnWarning                                   optimize of a JVM loses values of an added column
    ├── CorruptTagWarning                                    invalid index tags: the file is read as a whole
    ├── DesignEffectWarning                                  equal keys cluster the sample
    │   └── EmptySampleWarning                               no row, but many were expected
    ├── HiddenColumnWarning                                  files have a column that a JVM does not expect
    ├── LostValuesWarning                                    a file of another format lost values
    ├── SmallBufferWarning                                   a buffer is too small for a full shuffle
    ├── SmallPartitionsWarning                               partitions have fewer rows than one cube
    ├── UnevenSampleWarning                                  a reindex moved a part of the rows
    └── UnindexedSampleWarning                               a sample reads all files

Catch `QbeastError` to catch all of them. Codes never change and are listed in docs/errors.md. Facts are attributes.
Errors can be pickled. `argument`, `value` and `known` are the invalid argument, its value and the values that it
accepts. `changed` says whether the call changed the table before it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType
from typing import Any, ClassVar, Final, NoReturn, ParamSpec, Self, TypeVar

from qbeast_core.support.calls import CallRule, call_rule, expanded_signature, keyword_group
from qbeast_core.support.text import concise, did_you_mean, for_people, nearest, similar, without_secrets

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)

# Attribute of functions that check their keyword arguments themselves.
_CHECKED: Final = "checks_keywords"
_MAX_CHARACTERS: Final = 80
_ENDS: Final = (".", "?", "!")
# What became of the table, by `QbeastError.changed`. If it is unknown, the message explains it.
_STILL: Final[Mapping[bool | None, str]] = {
    False: "Nothing was changed.",
    True: "Nothing more was changed. Versions that the call committed before stay.",
    None: "",
}


def shown_cause(error: BaseException) -> BaseException:
    """Return the error for ``raise ... from``; if its text may contain a password or a signature, one without them."""
    text = str(error)
    masked = without_secrets(text)
    return error if masked == text else RuntimeError(f"{type(error).__name__}: {masked}")


@contextmanager
def changed_before(changed: Callable[[], bool | None]) -> Generator[None]:
    """Set `QbeastError.changed` of errors raised inside. `changed` returns whether the table changed; None: unknown."""
    try:
        yield
    except QbeastError as error:
        if error.changed is False:
            error.changed = changed()
        raise


def changing(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Complete the messages of errors by what became of the table. Functions that change it are decorated.

    A call with wrong arguments has a hint, see `hints_keywords`.

    >>> @changing
    ... def write() -> None:
    ...     raise QbeastError("the disk is full")
    >>> write()
    Traceback (most recent call last):
    ...
    qbeast_core.errors.QbeastError: the disk is full. Nothing was changed.
    """
    rule = call_rule(call)

    @wraps(call)
    def completing(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        if not _allows(rule, args, kwargs):
            raise _wrong_call(call, args, kwargs)
        try:
            return call(*args, **kwargs)
        except QbeastError as error:
            error.in_change = True
            raise

    setattr(completing, _CHECKED, True)
    return _expanded(completing)


def hints_keywords(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Add to the error of a call with wrong arguments what to write instead.

    >>> hints_keywords(lambda sample=None: sample)(seed=3)
    Traceback (most recent call last):
    ...
    TypeError: <lambda>() got an unexpected keyword argument 'seed'. A table fixes the rows of a sample, without...
    """
    rule = call_rule(call)

    @wraps(call)
    def checked(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        if not _allows(rule, args, kwargs):
            raise _wrong_call(call, args, kwargs)
        return call(*args, **kwargs)

    return _expanded(checked)


def _allows(rule: CallRule, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Return whether a call has the arguments that the function takes."""
    return (
        (rule.names is None or kwargs.keys() <= rule.names)
        and len(args) <= rule.most
        and all(name in kwargs for name in rule.required[len(args) :])
        and all(name in kwargs for name in rule.by_name)
    )


def _wrong_call(
    call: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> TypeError:
    from qbeast_core.support.hints import wrong_call  # noqa: PLC0415 - the words are only for errors

    return wrong_call(call, args, kwargs)


def _expanded(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Make `inspect.signature` and `help` show the members of a keyword group."""
    if keyword_group(call) is not None:
        setattr(call, "__signature__", expanded_signature(call))  # noqa: B010 - unknown to type checkers
    return call


def hints_methods(cls: _Class) -> _Class:
    """Decorate the public methods of a class by `hints_keywords`.

    >>> @hints_methods
    ... class Reader:
    ...     def read(self, columns=None): ...
    >>> Reader().read(column=["a"])
    Traceback (most recent call last):
    ...
    TypeError: Reader.read() got an unexpected keyword argument 'column'. Did you mean 'columns'?
    """
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_") and not hasattr(member, _CHECKED):
            setattr(cls, name, hints_keywords(member))
    return cls


def without_attributes(*words: str) -> Callable[[Callable[_Params, _Result]], Callable[_Params, _Result]]:
    """Decorate a method whose attributes are methods in other libraries: a call of one raises an error with a hint."""

    def decorated(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
        for word in words:
            setattr(call, word, partial(_refuse_attribute, call.__qualname__, word))
        return call

    return decorated


def _refuse_attribute(call: str, word: str, *_: object, **__: object) -> NoReturn:
    from qbeast_core.support.hints import method_hint  # noqa: PLC0415 - the words are only for errors

    msg = f"{call} is a method and has no {word}().{method_hint(word)}"
    raise AttributeError(msg, name=word)


def hints_arguments(cls: _Class) -> _Class:
    """Decorate the initialiser of a class by `hints_keywords`."""
    setattr(cls, "__init__", hints_keywords(vars(cls)["__init__"]))  # noqa: B010 - of a class, to type checkers
    return cls


def _rebuild(cls: type[QbeastError], args: tuple[Any, ...], state: dict[str, Any]) -> QbeastError:
    error = cls.__new__(cls, *args)
    error.args = args  # `OSError.__new__` does not set them
    error.__dict__.update(state)
    return error


class _Shown:
    """Errors and warnings whose messages are safe to show to people."""

    args: tuple[Any, ...]

    def __init__(self, *args: object) -> None:
        super().__init__(*(concise(for_people(arg)) if isinstance(arg, str) else arg for arg in args))


class QbeastError(_Shown, Exception):
    """Base class of all errors of qbeast.

    Messages may quote names, data and other libraries. They are one line without passwords, signatures of addresses,
    colours and control characters. Of a long text they quote the first 300 characters.
    """

    code: ClassVar[str] = "qbeast"
    """Stable, machine-readable code. Codes may be added but are never renamed."""

    changed: bool | None = False
    """Whether the call changed the table before it failed. None: unknown.

    Usually False, because a call commits once, at its end. True if the call makes several commits or deletes files, and
    some of this was done. A second call continues.
    """

    in_change: bool = False
    """Whether the call that failed changes tables. The message then ends with what became of the table."""

    argument: str | None = None
    """Name of the argument that is invalid or that can help. None: the error is not about an argument."""

    value: object = None
    """The value of `argument`, if that value is invalid."""

    known: tuple[object, ...] = ()
    """Values that `argument` accepts, the most similar first; empty if they cannot be listed."""

    def __str__(self) -> str:
        text = super().__str__()
        still = _STILL[self.changed] if self.in_change else ""
        return f"{text}{'' if text.endswith(_ENDS) else '.'} {still}" if still else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without ``__init__``, so that workers can return errors."""
        return _rebuild, (type(self), self.args, self.__dict__)


class _PathError(QbeastError):
    """An error about a path."""

    def __init__(self, message: str, *, path: str, argument: str | None = None) -> None:
        self.path, self.argument = path, argument
        super().__init__(message)


class InvalidInputError(QbeastError, ValueError):
    """An argument is invalid."""

    code = "invalid-input"

    def __init__(
        self, message: str, *, argument: str | None = None, value: object = None, known: Iterable[object] = ()
    ) -> None:
        self.argument, self.value, self.known = argument, value, nearest(value, known)
        super().__init__(message)


def invalid_argument(
    argument: str,
    problem: str,
    *,
    value: object = None,
    known: Iterable[object] = (),
    cure: str = "",
) -> NoReturn:
    """Raise `InvalidInputError` for the value of an argument. By default it suggests a similar known value.

    >>> invalid_argument("mode", "must be one of two", value="apend", known=["append"])
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `mode` must be one of two, not 'apend'. Did you mean...
    """
    from qbeast_core.support.hints import value_hint  # noqa: PLC0415 - the words are only for errors

    known = tuple(known)
    guesses = similar(value, known) if isinstance(value, str) else []
    cure = (
        cure or value_hint(argument, value) or (f'Did you mean {argument}="{guesses[0]}"?' if guesses else "")
    )
    message = f"`{argument}` {problem}, not {_brief(value)}{cure and f'. {cure}'}"
    raise InvalidInputError(message, argument=argument, value=value, known=known)


def check_choice(argument: str, value: object, choices: Sequence[str | None]) -> None:
    """Raise unless `value` is one of the choices; None among them means that the argument is optional."""
    if value not in choices:
        texts = [choice for choice in choices if choice is not None]
        quoted = [f'"{text}"' for text in texts]
        listed = ", ".join(quoted[:-1])
        invalid_argument(argument, f"must be {listed} or {quoted[-1]}", value=value, known=texts)


def check_whole_number(argument: str, value: object, minimum: int, *, cure: str = "") -> None:
    """Raise `InvalidInputError` unless the value of an argument is a whole number, `minimum` or more.

    >>> check_whole_number("rows", 3, 0)
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        invalid_argument(argument, f"must be a whole number, {minimum} or more", value=value, cure=cure)


def unknown_columns(argument: str, unknown: Sequence[str], known: Iterable[str]) -> NoReturn:
    """Raise `InvalidInputError` for unknown columns. It suggests similar names.

    >>> unknown_columns("on", ["idd"], ["id"])
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `on` names no such column(s): ['idd']; there are ['id']. Did...
    """
    columns = list(known)
    names = f"`{argument}` names no such column(s): {unknown}; there are {columns}"
    message = f"{names}.{did_you_mean(map(str, unknown), columns)}"
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
    """Rows had to be read twice, and the second read returned other rows."""

    code = "input-changed"

    def __init__(self, message: str, *, rows_before: int = 0, rows_after: int = 0) -> None:
        super().__init__(message, argument="df")
        self.rows_before = rows_before
        self.rows_after = rows_after


class InvalidColumnsError(InvalidInputError):
    """The columns to index are unknown, repeated, not indexable, too many or differ from the columns of the table."""

    code = "invalid-columns"

    def __init__(
        self, message: str, *, columns: Sequence[str] = (), value: object = None, known: Iterable[object] = ()
    ) -> None:
        self.columns = tuple(columns)
        super().__init__(message, argument="columns", value=value, known=known)


class SchemaMismatchError(InvalidInputError):
    """The rows do not fit the columns of the table. `problems` lists all differences."""

    code = "schema-mismatch"

    def __init__(self, message: str, *, problems: Sequence[str] = (), argument: str = "df") -> None:
        self.problems = tuple(problems)
        super().__init__(message, argument=argument)


class ConstraintViolationError(InvalidInputError):
    """Rows break a rule of the table: a constraint, an invariant, a generated column, a field without nulls.

    Attributes
    ----------
    constraint : str
        Name of the constraint, or of the column that has the rule.
    expression : str
        The rule, in Spark SQL.
    rows : int
        Number of rows that break the rule, among the rows that were checked before the error.
    example : dict of str to object
        Values of one of these rows, of the columns that the rule uses.
    """

    code = "constraint-violation"

    def __init__(
        self,
        message: str,
        *,
        constraint: str,
        expression: str,
        rows: int,
        example: Mapping[str, object],
        argument: str | None = "df",
    ) -> None:
        self.constraint, self.expression, self.rows, self.example = (
            constraint,
            expression,
            rows,
            dict(example),
        )
        super().__init__(message, argument=argument)


class InvalidMetadataError(QbeastError, ValueError):
    """Stored metadata does not follow the Qbeast format."""

    code = "invalid-metadata"


class TableExistsError(_PathError, FileExistsError):
    """There is a table, or something else, at the path, and the mode forbids writing to it."""

    code = "table-exists"


class TableNotFoundError(_PathError, FileNotFoundError):
    """There is no Delta table at the path."""

    code = "table-not-found"


class NotQbeastTableError(_PathError, ValueError):
    """The Delta table at the path has no Qbeast metadata."""

    code = "not-a-qbeast-table"


class UnsupportedTableError(_PathError):
    """The table uses a feature that this library does not support."""

    code = "unsupported-table"

    def __init__(self, message: str, *, path: str, feature: str, argument: str | None = None) -> None:
        self.feature = feature
        super().__init__(message, path=path, argument=argument)


class DamagedFileError(_PathError, ValueError):
    """The bytes of a file break its format: it was truncated or overwritten, or has another format.

    Attributes
    ----------
    path : str
        Path of the file.
    place : str
        Place in the file, from the outermost structure to the innermost; empty if unknown.
    """

    code = "damaged-file"

    def __init__(self, message: str, *, path: str, place: str = "") -> None:
        self.place = place
        super().__init__(message, path=path)


class VersionNotFoundError(_PathError, LookupError):
    """The version does not exist, or all versions are newer than the time."""

    code = "version-not-found"

    def __init__(self, message: str, *, path: str, version: object) -> None:
        self.version = version
        super().__init__(message, path=path)


class CommitConflictError(QbeastError):
    """The commit conflicts with a commit of another writer. Nothing was committed."""

    code = "commit-conflict"

    def __init__(self, message: str, *, table: str, version: int, attempts: int) -> None:
        self.table, self.version, self.attempts = table, version, attempts
        super().__init__(message)


class CommitUnknownError(QbeastError):
    """The store failed during the commit, and it is unknown whether the commit exists."""

    code = "commit-unknown"
    changed = None

    def __init__(self, message: str, *, table: str, version: int, txn_id: str) -> None:
        self.table, self.version, self.txn_id = table, version, txn_id
        super().__init__(message)


class StorageError(_PathError, OSError):
    """A read or a write failed: no permission, full disk, lost network."""

    code = "storage"


class MemoryBudgetError(_PathError, MemoryError):
    """The metadata of the files does not fit into memory. It was not read.

    Attributes
    ----------
    path : str
        Path of the table.
    files : int
        Number of files.
    needed_bytes : int
        Approximate memory that their metadata needs.
    """

    code = "memory-budget"

    def __new__(cls, *args: Any, **_: Any) -> Self:
        """Make the error; `MemoryError.__new__` fails for classes with other bases before it."""
        return Exception.__new__(cls, *args)

    def __init__(self, message: str, *, path: str, files: int, needed_bytes: int) -> None:
        self.files, self.needed_bytes = files, needed_bytes
        super().__init__(message, path=path)


class MissingDependencyError(QbeastError, RuntimeError):
    """A program or package that the call needs is not installed. Nothing was done.

    Attributes
    ----------
    dependency : str
        Name of the program or package.
    extra : str or None
        Extra of qbeast that installs it, such as ``"plot"``.
    """

    code = "missing-dependency"

    def __init__(self, message: str, *, dependency: str, extra: str | None = None) -> None:
        self.dependency, self.extra = dependency, extra
        super().__init__(message)


class SessionLostError(QbeastError, RuntimeError):
    """The Spark session that moved the rows ended before the commit. The table is unchanged."""

    code = "session-lost"


class QbeastWarning(_Shown, UserWarning):
    """Base class of all warnings of qbeast. Messages follow the rules of `QbeastError`."""


class AddedColumnWarning(QbeastWarning):
    """A column was added to a table that qbeast-spark uses, whose optimize loses values of such columns."""


class CorruptTagWarning(QbeastWarning):
    """Index tags or settings are invalid. The files are read as a whole; no row is lost."""


class HiddenColumnWarning(QbeastWarning):
    """Files have a column that is not in the schema of the table, and qbeast-spark does not expect it."""


class LostValuesWarning(QbeastWarning):
    """A file of another format has lost values because of a known error of its writer."""


class SmallBufferWarning(QbeastWarning):
    """Rows are shuffled in parts, because the buffer is smaller than a sixteenth of them or files have no room."""


class SmallPartitionsWarning(QbeastWarning):
    """Partitions have fewer rows than one cube, so the index cannot skip rows inside of them."""


class UnindexedSampleWarning(QbeastWarning):
    """A sample reads all files, because no index has its columns (`sample_by`)."""


class UnevenSampleWarning(QbeastWarning):
    """A sample has more or fewer rows than its fraction, because a reindex has moved a part of the rows."""


class DesignEffectWarning(QbeastWarning):
    """Many rows have equal index keys, and such rows enter a sample together (cluster sampling)."""


class EmptySampleWarning(DesignEffectWarning):
    """A sample has no row although many were expected: there are few index keys."""
