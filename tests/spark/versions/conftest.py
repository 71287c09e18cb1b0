"""What older PySparks warn of by themselves is no error; the newest one gets no such leave."""

from __future__ import annotations

import pyspark
import pytest

OLD = tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 1)
WARNINGS = [
    "ignore:unclosed <socket:ResourceWarning",  # collect() leaves its socket to the collector
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
]


def pytest_configure(config: pytest.Config) -> None:
    if OLD:
        for line in WARNINGS:
            config.addinivalue_line("filterwarnings", line)
