"""What older PySparks warn of by themselves is no error; the newest one gets no such leave."""

from __future__ import annotations

import pyspark
import pytest

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
WARNINGS = [
    "ignore:unclosed <socket:ResourceWarning",  # collect() leaves its socket to the collector
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
]
# The search for doctests imports every module.
collect_ignore = ["toy_source.py"] if VERSION < (4, 0) else []


def pytest_configure(config: pytest.Config) -> None:
    if VERSION < (4, 1):
        for line in WARNINGS:
            config.addinivalue_line("filterwarnings", line)
