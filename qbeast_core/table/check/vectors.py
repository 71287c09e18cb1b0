"""Check deletion vectors: that they can be read, and hide as many rows as the log counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qbeast_core.errors import QbeastError
from qbeast_core.io.store import map_files
from qbeast_core.log.deletion_vectors import parse_vector, vector_path
from qbeast_core.space.values import I64Array
from qbeast_core.table.check.faults import Fault
from qbeast_core.table.snapshot.hidden_rows import deleted_rows
from qbeast_core.table.snapshot.snapshot import Snapshot


def vector_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Return the faults of all deletion vectors of a version."""
    listed, faults = readable_vectors(snapshot, _with_vectors(snapshot))
    yield from faults
    for number, rows in listed.items():
        path, logged = snapshot.data_paths[number], snapshot.files["num_records"][number]
        if logged is not None and len(rows) and rows[-1] >= logged:
            message = f"its deletion vector hides row {rows[-1]:,}, and the log counts {logged:,}"
            yield Fault("deletion-vector", message, path=path)
        count = (parse_vector(snapshot.files["deletion_vector"][number]) or {}).get("cardinality")
        if count != len(rows):
            message = (
                f"its deletion vector hides {len(rows):,} rows, and the log counts {count!r}: reads refuse it"
            )
            yield Fault("vector-count", message, path=path)


def missing_vectors(snapshot: Snapshot) -> Iterator[Fault]:
    """Return a fault for each file whose deletion vector does not exist, without reading the vectors."""
    numbers = _with_vectors(snapshot)
    try:
        vectors = {number: parse_vector(snapshot.files["deletion_vector"][number]) for number in numbers}
        files = {number: vector_path(vector or {}) for number, vector in vectors.items()}
    except (QbeastError, ValueError):  # an invalid descriptor: reading finds which one
        yield from readable_vectors(snapshot, numbers)[1]
        return
    texts = {number: file.text for number, file in files.items() if file is not None}
    paths = list(dict.fromkeys(texts.values()))
    problems = dict(
        zip(paths, map_files(snapshot.store, lambda path: _problem(snapshot, path), paths), strict=True)
    )
    for number, text in texts.items():
        if problems[text] is not None:
            message = f"its deletion vector is in {text!r}: {problems[text]}"
            yield Fault("deletion-vector", message, path=snapshot.data_paths[number])


def readable_vectors(snapshot: Snapshot, numbers: Sequence[int]) -> tuple[dict[int, I64Array], list[Fault]]:
    """Return the rows that the vectors of some files hide, and the faults of vectors that cannot be read."""
    try:
        return deleted_rows(snapshot, numbers), []
    except QbeastError as error:
        if len(numbers) == 1:
            return {}, [Fault("deletion-vector", str(error), path=snapshot.data_paths[numbers[0]])]
    # In halves, so that one damaged vector of many costs few rounds of requests.
    middle = len(numbers) // 2
    first, second = (readable_vectors(snapshot, part) for part in (numbers[:middle], numbers[middle:]))
    return first[0] | second[0], first[1] + second[1]


def _with_vectors(snapshot: Snapshot) -> list[int]:
    return snapshot.files["has_deletion_vector"].arg_true().to_list()


def _problem(snapshot: Snapshot, path: str) -> str | None:
    """Return why a file cannot be read; None: it is there."""
    try:
        snapshot.store.size(path)
    except FileNotFoundError:
        return "it does not exist, so the deleted rows are not known"
    except QbeastError as error:
        return str(error)
    return None
