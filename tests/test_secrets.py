"""What is secret stays so: no repr, no message and no terminal shows credentials, passwords or hidden codes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pydantic
import pytest

import qbeast_core
import qbeast_spark_bridge
from qbeast_core import errors
from qbeast_core.io.location import open_store
from qbeast_core.io.remote import RemoteStore
from qbeast_core.support.frames import to_json
from qbeast_core.support.text import for_people, visible, without_secrets
from qbeast_core.table.snapshot.delta import delta_errors

SECRET = "hunter2-hunter2"  # noqa: S105 - of nobody
ADDRESS = f"http://me:{SECRET}@127.0.0.1:9/bucket?X-Amz-Signature={SECRET}"
SHOWN = "http://***@127.0.0.1:9/bucket?***"


def classes() -> list[type]:
    """Return every class of the packages."""
    actual: dict[type, None] = {}
    for package in (qbeast_core, qbeast_spark_bridge):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("__main__", "torch_dataset")):  # the second needs PyTorch
                loaded = importlib.import_module(module.name)
                own = (one for _, one in inspect.getmembers(loaded, inspect.isclass))
                actual.update(dict.fromkeys(one for one in own if one.__module__ == module.name))
    return list(actual)


CLASSES = classes()
FORMS = [one for one in CLASSES if dataclasses.is_dataclass(one)]


def test_classes_with_secrets_are_found() -> None:
    names = {one.__name__ for one in FORMS}
    assert {"WriteOptions", "Location", "SourceOptions", "ScanTask"} <= names


def test_no_dataclass_shows_storage_options() -> None:
    shown = [
        f"{one.__module__}.{one.__name__}.{field.name}"
        for one in FORMS
        for field in dataclasses.fields(one)
        if "storage_options" in field.name and field.repr
    ]
    assert shown == []


@pytest.mark.parametrize(
    "form",
    [one for one in FORMS if any("storage_options" in field.name for field in dataclasses.fields(one))],
    ids=lambda one: one.__name__,
)
def test_no_repr_shows_storage_options(form: type[Any]) -> None:
    instance = object.__new__(form)
    for field in dataclasses.fields(form):
        value = {"aws_secret_access_key": SECRET} if "storage_options" in field.name else None
        object.__setattr__(instance, field.name, value)
    for text in (repr(instance), str(instance), f"{[instance]}"):
        assert SECRET not in text


def test_pydantic_models_and_tuples_hold_no_options() -> None:
    for one in CLASSES:
        named = getattr(one, "_fields", ()) if issubclass(one, tuple) else ()
        names = one.model_fields if issubclass(one, pydantic.BaseModel) else named
        assert not any("storage_options" in name for name in names), one


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (errors.StorageError, {"path": "p"}),
        (errors.InvalidInputError, {"argument": "path"}),
        (errors.TableNotFoundError, {"path": "p"}),
        (errors.CommitConflictError, {"table": "t", "version": 1, "attempts": 2}),
        (errors.QbeastWarning, {}),
    ],
)
def test_messages_escape_controls_and_hide_secrets(kind: Any, facts: dict[str, Any]) -> None:
    report = kind(f"\x1b[31mno\x1b[0m: {ADDRESS} \x9b2J\x07 \u202etxt.exe\r\nnext\tline", **facts)
    assert str(report) == f"no: {SHOWN} \\x9b2J\\x07 \\u202etxt.exe\\r\\nnext\\tline"
    assert str(pickle.loads(pickle.dumps(report))) == str(report)  # noqa: S301 - our own
    assert SECRET not in repr(report)


@pytest.mark.parametrize(
    "text", ["", "s3://bucket/t", "abfss://d@a.dfs.core.windows.net/t", "a@b ? c=d", "x://", "https://h/a?b"]
)
def test_other_text_is_unchanged(text: str) -> None:
    assert without_secrets(text) == text
    assert for_people(text) == text


@pytest.mark.parametrize("scheme", ["http", "https", "s3", "postgres+x"])
@pytest.mark.parametrize("user", ["me:{}", ":{}", "me:{}:x", "me:{}@host", "{}:"])
def test_passwords_are_masked_for_any_scheme(scheme: str, user: str) -> None:
    for text in (f"{scheme}://{user}@h:1/a".format(SECRET), f"('{scheme}://{user}@h', x)".format(SECRET)):
        assert SECRET not in without_secrets(text)
        assert "h" in without_secrets(text)


def test_store_errors_hide_passwords_and_causes() -> None:
    options = {
        "aws_endpoint": ADDRESS.partition("?")[0],
        "aws_allow_http": "true",
        "aws_region": "x",
        "max_retries": "0",
        "aws_access_key_id": "a",
        "aws_secret_access_key": SECRET,
    }
    store = RemoteStore("s3://bucket/t", options)
    with pytest.raises(errors.StorageError) as caught:
        store.get("a")
    assert "cannot read 'a'" in str(caught.value)
    hidden_everywhere(caught.value)
    with pytest.raises(errors.QbeastError) as caught, delta_errors("s3://bucket/t"):
        raise OSError(ADDRESS)
    hidden_everywhere(caught.value)
    with pytest.raises(errors.InvalidInputError, match="has a password") as caught:
        open_store(f"s3://me:{SECRET}@bucket/t")
    hidden_everywhere(caught.value)


def hidden_everywhere(error: BaseException) -> None:
    """Check the error and all that a traceback prints of its causes."""
    report: BaseException | None = error
    while report is not None:
        assert SECRET not in str(report)
        report = report.__cause__ or (None if report.__suppress_context__ else report.__context__)


def test_json_escapes_terminal_codes() -> None:
    text = to_json({"x": "\x1b[31m\x9b2J\u202e\u2028ü\n"})
    assert text.isprintable() or "\n" in text
    assert visible(text) == text
    assert "ü" in text
