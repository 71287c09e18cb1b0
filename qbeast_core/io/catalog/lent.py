"""Where a name in a catalog leads, and credentials that the catalog lends: they are requested again in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from qbeast_core.errors import QbeastError, StorageError
from qbeast_core.support.process import now_ms

# Credentials are requested again this long before they expire, or when a fifth of their time is left.
_EARLY_MS: Final = 300_000
# Time until the next request if they have expired already: the clocks of the catalog and of this machine may differ.
_PAUSE_MS: Final = 30_000

# Names of options with credentials, in lower case and without the prefix of the cloud. A catalog's replace them all.
_CREDENTIALS: Final = frozenset(
    {
        "access_key",
        "access_key_id",
        "account_key",
        "application_credentials",
        "authority_id",
        "bearer_token",
        "client_id",
        "client_secret",
        "container_credentials_relative_uri",
        "federated_token_file",
        "master_key",
        "sas_key",
        "sas_token",
        "secret_access_key",
        "service_account",
        "service_account_key",
        "service_account_path",
        "session_token",
        "skip_signature",
        "tenant_id",
        "token",
        "use_azure_cli",
    }
)
# Options for catalogs, in lower case. They are not those of a store.
CATALOG_OPTIONS: Final = frozenset(
    {
        "databricks_host",
        "databricks_token",
        "unity_allow_http",
        "unity_allow_local_paths",
        "unity_endpoint",
        "unity_token",
    }
)
_PREFIXES: Final = ("aws_", "azure_storage_", "azure_", "google_")


@dataclass(frozen=True, slots=True)
class Found:
    """A table that a catalog has: its address, the options to open it, and why it cannot be changed."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    read_only: str | None = None


@dataclass(frozen=True, slots=True)
class Lent:
    """Credentials as options of the store; and when they expire, in milliseconds since 1970. None: it is unknown."""

    credentials: Mapping[str, str] = field(repr=False)
    expires_ms: int | None = None


class LentOptions(Mapping[str, str]):
    """Options with credentials that are valid when they are read.

    Threads share it. An error of the catalog is raised only when the credentials have expired. Another process cannot
    request others: it gets a dictionary with credentials that have half of their time left or more.
    """

    __slots__ = ("_clock", "_current", "_lend", "_lock", "_others")

    def __init__(
        self,
        lend: Callable[[], Lent],
        given: Mapping[str, str],
        first: Lent,
        *,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._lend = lend
        self._others = {key: value for key, value in given.items() if not _is_credential(key)}
        self._clock = clock
        self._lock = Lock()
        self._current = self._timed(first)

    @staticmethod
    def of(
        name: str, lend: Callable[[], Lent | None], given: Mapping[str, str], first: Lent | None
    ) -> LentOptions | None:
        """Return the options of a table with the first credentials, later with others. None: the catalog lends none."""
        if first is None:
            return None

        def again() -> Lent:
            lent = lend()
            if lent is None:
                msg = f"the catalog lends no more credentials for {name!r}. Open the table again."
                raise StorageError(msg, path=name)
            return lent

        return LentOptions(again, given, first)

    @property
    def others(self) -> Mapping[str, str]:
        """The options without credentials."""
        return self._others

    def lent(self) -> tuple[Mapping[str, str], int | None]:
        """Return credentials that are valid now, and when to request them again, in milliseconds since 1970."""
        fresh = self._fresh()
        return fresh.lent.credentials, fresh.due_ms

    def current(self) -> Mapping[str, str]:
        """Return the options with these, the same object while they are the same."""
        return self._fresh().options

    def lasting(self) -> dict[str, str]:
        """Return the options that another process gets."""
        return dict(self._fresh(for_others=True).options)

    def __getitem__(self, key: str) -> str:
        return self.current()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.current())

    def __len__(self) -> int:
        return len(self.current())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._current.options)})"

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        return dict, (self.lasting(),)

    def _fresh(self, *, for_others: bool = False) -> _Timed:
        if not self._current.is_due(self._clock(), for_others=for_others):
            return self._current
        with self._lock:
            now, current = self._clock(), self._current
            if current.is_due(now, for_others=for_others):
                try:
                    self._current = self._timed(self._lend())
                except QbeastError:
                    if current.has_expired(now):
                        raise
                    later = min(now + _PAUSE_MS, current.lent.expires_ms or 0)
                    self._current = _Timed(current.lent, current.options, later, later)
            return self._current

    def _timed(self, lent: Lent) -> _Timed:
        options = {**self._others, **lent.credentials}
        if lent.expires_ms is None:
            return _Timed(lent, options, None, None)
        now = self._clock()
        left = lent.expires_ms - now
        if left <= 0:  # the clock of this machine is ahead
            return _Timed(lent, options, now + _PAUSE_MS, now + _PAUSE_MS)
        return _Timed(lent, options, lent.expires_ms - min(_EARLY_MS, left // 5), lent.expires_ms - left // 2)


@dataclass(frozen=True, slots=True)
class _Timed:
    lent: Lent = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    due_ms: int | None
    # The same for credentials that other processes get.
    half_ms: int | None

    def is_due(self, now: int, *, for_others: bool) -> bool:
        due = self.half_ms if for_others else self.due_ms
        return due is not None and now >= due

    def has_expired(self, now: int) -> bool:
        return self.lent.expires_ms is not None and now >= self.lent.expires_ms


def current_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options with credentials that are valid now, the same object while they are the same.

    >>> options = {"aws_region": "eu-west-1"}
    >>> current_options(options) is options
    True
    """
    return options.current() if isinstance(options, LentOptions) else options


def lasting_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options for another process, with credentials that are valid for half of their time or more.

    >>> lasting_options({"aws_region": "eu-west-1"})
    {'aws_region': 'eu-west-1'}
    """
    return options.lasting() if isinstance(options, LentOptions) else dict(options)


def without_catalog(options: Mapping[str, str]) -> dict[str, str]:
    """Return options without those for catalogs.

    >>> without_catalog({"UNITY_TOKEN": "...", "AWS_REGION": "eu-west-1"})
    {'AWS_REGION': 'eu-west-1'}
    """
    return {key: value for key, value in options.items() if key.lower() not in CATALOG_OPTIONS}


def has_credentials(options: Mapping[str, str]) -> bool:
    """Return whether options have credentials of a store.

    >>> has_credentials({"AWS_REGION": "eu-west-1"}), has_credentials({"azure_storage_sas_token": "..."})
    (False, True)
    """
    return any(map(_is_credential, options))


def _is_credential(option: str) -> bool:
    key = option.lower()
    return next((key[len(prefix) :] for prefix in _PREFIXES if key.startswith(prefix)), key) in _CREDENTIALS
