from __future__ import annotations

import pytest

import qbeast
from qbeast_core.errors import InvalidMetadataError, StorageError, TableNotFoundError, UnsupportedTableError
from qbeast_core.table.snapshot.delta import delta_errors


class PanicException(BaseException):
    """No `Exception`, like the one that deltalake lets through."""


def test_panic_becomes_our_error() -> None:
    report = "attempt to subtract with overflow"
    with pytest.raises(InvalidMetadataError, match="damaged: attempt to subtract"), delta_errors("t"):
        raise PanicException(report)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_passes_through(interrupt: type[BaseException]) -> None:
    with pytest.raises(interrupt), delta_errors("t"):
        raise interrupt


def test_own_errors_pass_through() -> None:
    error = TableNotFoundError("as it was", path="t")
    with pytest.raises(TableNotFoundError, match="as it was") as caught, delta_errors("t"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("Kernel error: Unsupported: Feature 'foo' is not supported", UnsupportedTableError),
        ("Generic S3 error: Error performing GET", StorageError),
        ("Kernel error: Json error: Encountered unexpected 't'\n   0: <unknown>", InvalidMetadataError),
    ],
)
def test_messages_are_sorted_by_user_action(report: str, expected: type[Exception]) -> None:
    with pytest.raises(expected) as caught, delta_errors("s3://b/t"):
        raise ValueError(report)
    assert "<unknown>" not in str(caught.value)
    assert "s3://b/t" in str(caught.value)


@pytest.mark.parametrize(
    ("report", "cure"),
    [
        ("Forked process detected - current PID is 2 but the tokio runtime was created by 1.", "'spawn'"),
        (
            "Generic S3 error ... PUT http://169.254.169.254/latest/api/token ... tcp connect error",
            "credentials",
        ),
        ("Generic S3 error ... builder error ... URL scheme is not allowed", "AWS_ALLOW_HTTP"),
        ("Generic S3 error ... client error (Connect) ... dns error", "AWS_ENDPOINT_URL"),
        ("Generic S3 error ... tcp connect error ... Connection refused (os error 111)", "AWS_ENDPOINT_URL"),
        (
            'task 13 panicked with message "TokioMultiThreadExecutor has crashed: RecvError"',
            "AWS_ENDPOINT_URL",
        ),
        (
            "Kernel error -> Operation not supported: an error occurred while loading credentials, no IMDS token",
            "credentials are missing",
        ),
        ("Generic S3 error ... 403 Forbidden: InvalidAccessKeyId", "refuses these credentials"),
        ("Generic S3 error ... <Code>ExpiredToken</Code>", "the credentials have expired"),
        (
            "... 403 Forbidden: <Code>AuthenticationFailed</Code> Signature not valid in the specified time frame",
            "the credentials have expired",
        ),
        ("Generic Azure error: the caller lacked the necessary privileges", "refuses these credentials"),
    ],
)
def test_other_failures_are_not_called_damage(report: str, cure: str) -> None:
    with pytest.raises(StorageError, match=cure) as caught, delta_errors("s3://b/t"):
        raise PanicException(report)
    assert "damaged" not in str(caught.value)


def test_unreachable_endpoint_is_described() -> None:
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "max_retries": "0"}
    with pytest.raises(StorageError, match="the store cannot be reached"):
        qbeast.open_table("s3://bucket/table", storage_options={**options, **keys})
