"""What tests of several folders ask for: one S3 server for the whole run of a process, a bucket for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """The storage options of a server in this process; others' buckets are there too."""
    from tests.helpers.buckets import serving  # noqa: PLC0415 -- loading the server takes a second

    with serving() as options:
        yield options


@pytest.fixture
def bucket(s3_options: dict[str, str]) -> str:
    """A new bucket in that server, empty."""
    from tests.helpers.buckets import new_bucket  # noqa: PLC0415 -- as above

    return new_bucket(s3_options)
