"""Every engine passes every scenario; Spark runs the same in tests/spark/change/test_contract.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.engines import ENGINES
from tests.contract.scenarios import SCENARIOS, check
from tests.helpers.small_files import TINY, resized, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


# These change three tables, or refuse rows: workers and Spark are enough beside the memory.
DEAR = {("spill", "deletion vectors"), ("spill", "deletion vectors of merge"), ("spill", "rules")}


def cases(*dear: str) -> pytest.MarkDecorator:
    """Run each engine with each scenario, some engines in the sweep alone."""
    return pytest.mark.parametrize(
        ("engine", "scenario"),
        [
            pytest.param(
                engine,
                scenario,
                marks=pytest.mark.sweep if engine in dear or (engine, scenario) in DEAR else (),
            )
            for engine in ENGINES
            for scenario in SCENARIOS
        ],
    )


@cases()
def test_engine_passes_the_scenario(engine: str, scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with small_files(file_rows=100):
        expected = SCENARIOS[scenario].run(ENGINES[engine], path)
    check(SCENARIOS[scenario], path, expected)


@cases("spill", "odd workers")
def test_engine_passes_the_scenario_with_tiny_sizes(engine: str, scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with resized(**TINY):
        with small_files(file_rows=100):
            expected = SCENARIOS[scenario].run(ENGINES[engine], path)
        check(SCENARIOS[scenario], path, expected)
