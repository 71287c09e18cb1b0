"""CarbonData tables in an object store: read and imported from there."""

from __future__ import annotations

import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.io.location import open_store
from tests.foreign.carbondata.collection import table_path

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


@pytest.mark.sweep
def test_table_in_bucket_is_read_and_imported(bucket: str, s3_options: dict[str, str]) -> None:
    path = table_path("tx230_partitioned")
    store = open_store(f"s3://{bucket}/carbon", s3_options)
    for file in path.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(path).as_posix(), file.read_bytes())
    here = qbeast.read_carbondata(path).sort("id")
    actual = qbeast.scan_carbondata(f"s3://{bucket}/carbon", storage_options=s3_options).collect()
    assert_frame_equal(actual.sort("id"), here)
    result = qbeast.import_carbondata(
        f"s3://{bucket}/carbon", f"s3://{bucket}/new", ["id"], storage_options=s3_options
    )
    assert result.rows == here.height
    assert_frame_equal(qbeast.read_table(f"s3://{bucket}/new", storage_options=s3_options).sort("id"), here)
