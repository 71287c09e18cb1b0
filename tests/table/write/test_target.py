"""What a write finds at its path, where no server is needed to say so."""

from __future__ import annotations

import pytest

from qbeast_core.errors import TableNotFoundError
from qbeast_core.table.write import target


def test_empty_azure_path_uses_storage_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(uri: str, **_: object) -> None:
        raise TableNotFoundError(uri, path=uri)

    monkeypatch.setattr(target, "newest_snapshot", nothing)
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    # Unlike those of S3, such a place cannot be opened without an account.
    options = {"azure_storage_account_name": "someone", "azure_storage_account_key": "a2V5"}
    assert target.find_target("az://container/table", "append", options) is None
