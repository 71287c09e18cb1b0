"""Every engine passes every scenario; Spark runs the same in tests/spark/test_contract.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.engines import ENGINES
from tests.contract.scenarios import SCENARIOS, check
from tests.helpers.tables import small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_passes_the_scenario(engine: str, scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with small_files(file_rows=80):
        expected = SCENARIOS[scenario].run(ENGINES[engine], path)
    check(SCENARIOS[scenario], path, expected)
