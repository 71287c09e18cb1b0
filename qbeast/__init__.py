"""Delta tables organised by a multidimensional index.

Filters on indexed columns skip most of the data. A sample of a fraction reads about this fraction of the bytes. All
readers of Delta can read the tables.

>>> import polars as pl, qbeast
>>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
>>> result = qbeast.write_table(rows, "prices", columns=["id", "price"])
>>> qbeast.scan_table("prices", sample=0.1).collect().height
81
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

from qbeast_core.errors import (
    AddedColumnWarning,
    CommitConflictError,
    CommitUnknownError,
    ConstraintViolationError,
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
    MemoryBudgetError,
    MissingDependencyError,
    NotQbeastTableError,
    QbeastError,
    QbeastWarning,
    SchemaMismatchError,
    SessionLostError,
    SmallBufferWarning,
    SmallPartitionsWarning,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnevenSampleWarning,
    UnindexedSampleWarning,
    UnsupportedTableError,
    VersionNotFoundError,
)

if _typing.TYPE_CHECKING:
    __version__: str

    from qbeast_carbondata.tables.importing import (
        ImportResult,
        import_carbondata,
        open_carbondata,
        read_carbondata,
        scan_carbondata,
    )
    from qbeast_carbondata.tables.table import CarbonPlan, CarbonTable
    from qbeast_core.api.functions import (
        convert_table,
        drop_table,
        estimate,
        open_table,
        read_table,
        scan_table,
        table_exists,
        write_table,
    )
    from qbeast_core.api.keywords import (
        ChangeKeywords,
        CommitKeywords,
        EstimateKeywords,
        OpenKeywords,
        ReadKeywords,
    )
    from qbeast_core.api.rows import Read
    from qbeast_core.api.table import Table
    from qbeast_core.results import MetadataResult
    from qbeast_core.support.process import Progress, Resources
    from qbeast_core.table.advise.advise import Advice
    from qbeast_core.table.advise.suggest import SuggestedColumns, suggest_columns
    from qbeast_core.table.check.faults import CheckReport
    from qbeast_core.table.check.repair import RepairResult
    from qbeast_core.table.dml.plan import ChangeResult
    from qbeast_core.table.estimate.join import Join
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.inspect.metrics import Metrics
    from qbeast_core.table.maintenance.convert import ConvertResult
    from qbeast_core.table.maintenance.metadata import DialectResult, UpgradeResult
    from qbeast_core.table.maintenance.reindex import ReindexResult
    from qbeast_core.table.maintenance.versions import DropResult, RestoreResult, VacuumResult
    from qbeast_core.table.read.explain import Plan
    from qbeast_core.table.read.shuffled import ShuffledBatches
    from qbeast_core.table.read.tasks import ScanTask
    from qbeast_core.table.rewrite.optimize import OptimizeResult
    from qbeast_core.table.write.write import WriteResult

__all__ = [
    "AddedColumnWarning",
    "Advice",
    "CarbonPlan",
    "CarbonTable",
    "ChangeKeywords",
    "ChangeResult",
    "CheckReport",
    "CommitConflictError",
    "CommitKeywords",
    "CommitUnknownError",
    "ConstraintViolationError",
    "ConvertResult",
    "CorruptTagWarning",
    "DamagedFileError",
    "DesignEffectWarning",
    "DialectResult",
    "DropResult",
    "EmptySampleWarning",
    "Estimate",
    "EstimateKeywords",
    "HiddenColumnWarning",
    "ImportResult",
    "InputChangedError",
    "InvalidColumnsError",
    "InvalidInputError",
    "InvalidMetadataError",
    "Join",
    "LostValuesWarning",
    "MemoryBudgetError",
    "MetadataResult",
    "Metrics",
    "MissingDependencyError",
    "NotQbeastTableError",
    "OpenKeywords",
    "OptimizeResult",
    "Plan",
    "Progress",
    "QbeastError",
    "QbeastWarning",
    "Read",
    "ReadKeywords",
    "ReindexResult",
    "RepairResult",
    "Resources",
    "RestoreResult",
    "ScanTask",
    "SchemaMismatchError",
    "SessionLostError",
    "ShuffledBatches",
    "SmallBufferWarning",
    "SmallPartitionsWarning",
    "StorageError",
    "SuggestedColumns",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "UnevenSampleWarning",
    "UnindexedSampleWarning",
    "UnsupportedTableError",
    "UpgradeResult",
    "VacuumResult",
    "VersionNotFoundError",
    "WriteResult",
    "__version__",
    "convert_table",
    "drop_table",
    "estimate",
    "import_carbondata",
    "open_carbondata",
    "open_table",
    "read_carbondata",
    "read_table",
    "scan_carbondata",
    "scan_table",
    "suggest_columns",
    "table_exists",
    "write_table",
]

_HOMES = {
    "qbeast_carbondata.tables.importing": (
        "import_carbondata",
        "ImportResult",
        "open_carbondata",
        "read_carbondata",
        "scan_carbondata",
    ),
    "qbeast_carbondata.tables.table": ("CarbonPlan", "CarbonTable"),
    "qbeast_core.api.functions": (
        "convert_table",
        "drop_table",
        "estimate",
        "open_table",
        "read_table",
        "scan_table",
        "table_exists",
        "write_table",
    ),
    "qbeast_core.api.keywords": (
        "ChangeKeywords",
        "CommitKeywords",
        "EstimateKeywords",
        "OpenKeywords",
        "ReadKeywords",
    ),
    "qbeast_core.api.rows": ("Read",),
    "qbeast_core.results": ("MetadataResult",),
    "qbeast_core.support.process": ("Progress", "Resources"),
    "qbeast_core.table.advise.advise": ("Advice",),
    "qbeast_core.table.advise.suggest": ("suggest_columns", "SuggestedColumns"),
    "qbeast_core.table.check.faults": ("CheckReport",),
    "qbeast_core.table.check.repair": ("RepairResult",),
    "qbeast_core.table.dml.plan": ("ChangeResult",),
    "qbeast_core.table.estimate.join": ("Join",),
    "qbeast_core.table.estimate.result": ("Estimate",),
    "qbeast_core.table.inspect.metrics": ("Metrics",),
    "qbeast_core.table.maintenance.convert": ("ConvertResult",),
    "qbeast_core.table.maintenance.metadata": ("DialectResult", "UpgradeResult"),
    "qbeast_core.table.maintenance.reindex": ("ReindexResult",),
    "qbeast_core.table.maintenance.versions": ("DropResult", "RestoreResult", "VacuumResult"),
    "qbeast_core.table.read.explain": ("Plan",),
    "qbeast_core.table.read.shuffled": ("ShuffledBatches",),
    "qbeast_core.table.read.tasks": ("ScanTask",),
    "qbeast_core.table.rewrite.optimize": ("OptimizeResult",),
    "qbeast_core.api.table": ("Table",),
    "qbeast_core.table.write.write": ("WriteResult",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

if not _typing.TYPE_CHECKING:  # type checkers report a name that is missing

    def _version() -> str:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - a tenth of the import

        try:
            return version("qbeast")
        except PackageNotFoundError:  # run from sources without installation
            return "0"

    def _hint_of(name: str) -> str:
        from qbeast_core.support.hints import function_hint  # noqa: PLC0415 - only for an error

        def members() -> list[str]:
            return dir(_importlib.import_module(_MODULES["Table"]).Table)

        return function_hint(name, __all__, members)

    def __getattr__(name: str) -> object:
        """Import modules at the first use, so that `import qbeast` is fast and does not import Polars."""
        if name == "__version__":
            value: object = _version()
        elif name in _MODULES:
            value = getattr(_importlib.import_module(_MODULES[name]), name)
        else:
            msg = f"module {__name__!r} has no attribute {name!r}.{_hint_of(name)}"
            raise AttributeError(msg, name=name, obj=_sys.modules[__name__])
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return [*__all__, *(name for name in globals() if name.startswith("__"))]
