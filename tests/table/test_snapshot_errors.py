from __future__ import annotations

import pytest

from qbeast_core.errors import InvalidMetadataError, StorageError, TableNotFoundError, UnsupportedTableError
from qbeast_core.table.delta_handle import delta_errors


class PanicException(BaseException):
    """No `Exception`, like the one that deltalake lets through."""


def test_a_panic_becomes_an_error_of_ours() -> None:
    told = "attempt to subtract with overflow"
    with pytest.raises(InvalidMetadataError, match="damaged: attempt to subtract"), delta_errors("t"):
        raise PanicException(told)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through(interrupt: type[BaseException]) -> None:
    with pytest.raises(interrupt), delta_errors("t"):
        raise interrupt


def test_errors_of_ours_pass_through() -> None:
    error = TableNotFoundError("as it was", path="t")
    with pytest.raises(TableNotFoundError, match="as it was") as caught, delta_errors("t"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("Kernel error: Unsupported: Feature 'foo' is not supported", UnsupportedTableError),
        ("Generic S3 error: Error performing GET", StorageError),
        ("Kernel error: Json error: Encountered unexpected 't'\n   0: <unknown>", InvalidMetadataError),
    ],
)
def test_messages_are_sorted_by_what_the_user_can_do(told: str, expected: type[Exception]) -> None:
    with pytest.raises(expected) as caught, delta_errors("s3://b/t"):
        raise ValueError(told)
    assert "<unknown>" not in str(caught.value)
    assert "s3://b/t" in str(caught.value)
