"""Every engine passes every scenario; Spark runs the same in tests/spark/test_contract.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.engines import ENGINES
from tests.contract.scenarios import SCENARIOS, check
from tests.helpers.small_files import resized, small_files
from tests.helpers.tables import each_sizes

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


# These change three tables: workers and Spark are enough beside the memory.
DEAR = {("spill", "deletion vectors"), ("spill", "deletion vectors of merge")}


@pytest.mark.parametrize(
    ("engine", "scenario"),
    [
        pytest.param(engine, scenario, marks=pytest.mark.sweep if (engine, scenario) in DEAR else ())
        for engine in ENGINES
        for scenario in SCENARIOS
    ],
)
@each_sizes
def test_engine_passes_the_scenario(
    engine: str, scenario: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    with resized(**sizes):
        with small_files(file_rows=100):
            expected = SCENARIOS[scenario].run(ENGINES[engine], path)
        check(SCENARIOS[scenario], path, expected)
