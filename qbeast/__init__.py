"""Delta tables organised by a multidimensional index.

Filters on any indexed column skip most of the data; a sample of a fraction reads about that fraction of
the bytes. Every Delta reader still reads the tables.

>>> import polars as pl, qbeast
>>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
>>> result = qbeast.write_table(rows, "prices", columns=["id", "price"])
>>> qbeast.scan_table("prices", sample=0.1).collect().height
81
"""

import importlib as _importlib
import sys as _sys
import typing as _typing
from importlib import metadata as _metadata

from qbeast_core.api import (
    convert_table,
    estimate,
    open_table,
    read_table,
    scan_table,
    upgrade_table,
    write_table,
)
from qbeast_core.errors import (
    AddedColumnWarning,
    CommitConflictError,
    CommitUnknownError,
    CorruptTagWarning,
    DamagedFileError,
    DesignEffectWarning,
    EmptySampleWarning,
    HiddenColumnWarning,
    InputChangedError,
    InvalidColumnsError,
    InvalidInputError,
    InvalidMetadataError,
    LostValuesWarning,
    MissingDependencyError,
    NotQbeastTableError,
    QbeastError,
    QbeastWarning,
    SchemaMismatchError,
    SessionLostError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from qbeast_core.runtime import Progress
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.scan_task import ScanTask
from qbeast_core.table.table import Table

if _typing.TYPE_CHECKING:
    from qbeast_core.carbon_tables.api import (
        import_carbondata,
        open_carbondata,
        read_carbondata,
        scan_carbondata,
    )
    from qbeast_core.carbon_tables.explain import CarbonPlan
    from qbeast_core.carbon_tables.importing import ImportResult
    from qbeast_core.carbon_tables.table import CarbonTable
    from qbeast_core.table.check.faults import CheckReport
    from qbeast_core.table.check.repair import RepairResult
    from qbeast_core.table.dml.plan import ChangeResult
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.inspect.metrics import Metrics
    from qbeast_core.table.maintenance.convert import ConvertResult
    from qbeast_core.table.maintenance.dialect import DialectResult
    from qbeast_core.table.maintenance.restore import RestoreResult
    from qbeast_core.table.maintenance.upgrade import UpgradeResult
    from qbeast_core.table.maintenance.vacuum import VacuumResult
    from qbeast_core.table.rewrite.optimize import OptimizeResult
    from qbeast_core.table.write.suggest import SuggestedColumns, suggest_columns
    from qbeast_core.table.write.write import WriteResult

try:
    __version__ = _metadata.version("qbeast")
except _metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0"

__all__ = [
    "AddedColumnWarning",
    "CarbonPlan",
    "CarbonTable",
    "ChangeResult",
    "CheckReport",
    "CommitConflictError",
    "CommitUnknownError",
    "ConvertResult",
    "CorruptTagWarning",
    "DamagedFileError",
    "DesignEffectWarning",
    "DialectResult",
    "EmptySampleWarning",
    "Estimate",
    "HiddenColumnWarning",
    "ImportResult",
    "InputChangedError",
    "InvalidColumnsError",
    "InvalidInputError",
    "InvalidMetadataError",
    "LostValuesWarning",
    "Metrics",
    "MissingDependencyError",
    "NotQbeastTableError",
    "OptimizeResult",
    "Plan",
    "Progress",
    "QbeastError",
    "QbeastWarning",
    "RepairResult",
    "RestoreResult",
    "ScanTask",
    "SchemaMismatchError",
    "SessionLostError",
    "StorageError",
    "SuggestedColumns",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "UnsupportedTableError",
    "UpgradeResult",
    "VacuumResult",
    "VersionNotFoundError",
    "WriteResult",
    "__version__",
    "convert_table",
    "estimate",
    "import_carbondata",
    "open_carbondata",
    "open_table",
    "read_carbondata",
    "read_table",
    "scan_carbondata",
    "scan_table",
    "suggest_columns",
    "upgrade_table",
    "write_table",
]

_LATER = {
    "CarbonPlan": "carbon_tables.explain",
    "CarbonTable": "carbon_tables.table",
    "ChangeResult": "table.dml.change",
    "CheckReport": "table.check.faults",
    "ConvertResult": "table.maintenance.convert",
    "DialectResult": "table.maintenance.dialect",
    "Estimate": "table.estimate.result",
    "ImportResult": "carbon_tables.importing",
    "Metrics": "table.inspect.metrics",
    "OptimizeResult": "table.rewrite.optimize",
    "RepairResult": "table.check.repair",
    "RestoreResult": "table.maintenance.restore",
    "SuggestedColumns": "table.write.suggest",
    "UpgradeResult": "table.maintenance.upgrade",
    "VacuumResult": "table.maintenance.vacuum",
    "WriteResult": "table.write.write",
    "import_carbondata": "carbon_tables.api",
    "open_carbondata": "carbon_tables.api",
    "read_carbondata": "carbon_tables.api",
    "scan_carbondata": "carbon_tables.api",
    "suggest_columns": "table.write.suggest",
}

if not _typing.TYPE_CHECKING:  # type checkers are to miss a name that is not there

    def __getattr__(name: str) -> object:
        """Import what is asked for: a program needs few of the operations, and their modules are a third of all."""
        if name not in _LATER:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=_sys.modules[__name__])
        return getattr(_importlib.import_module(f"qbeast_core.{_LATER[name]}"), name)

    def __dir__() -> list[str]:
        return [*__all__, *(name for name in globals() if name.startswith("__"))]
