"""Index metrics in plain Python, by section 13 of the format: a slow reference."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.invariants import read_log

COPIES = ("REPLICATED", "ANNOUNCED")


def reference(table: Path) -> dict[int, dict[str, Any]]:
    """Return the metrics of every revision of a table with valid tags."""
    log = read_log(table)
    placed: dict[int, list[dict[str, Any]]] = defaultdict(list)
    files: dict[int, dict[str, int]] = defaultdict(dict)
    staged_rows = 0
    for path, add in log.adds.items():
        tags = add.get("tags") or {}
        number = int(tags.get("revision", 0))
        files[number][path] = add["size"]
        if not number:
            staged_rows += json.loads(add["stats"])["numRecords"] if add.get("stats") else 0
            continue
        for block in _blocks(tags):
            placed[number].append({**block, "file": path, "tree": tuple(add["partitionValues"].values())})
    metrics = {}
    for number in {*log.revisions, *files}:
        revision = log.revisions.get(number) or max(log.revisions.items())[1]
        metrics[number] = _of_revision(
            placed[number], files[number], len(revision.columns), revision.desired_cube_size
        )
        if not number:
            metrics[number] |= {"rows": staged_rows}
    return metrics


def _blocks(tags: dict[str, str]) -> list[dict[str, Any]]:
    if "blocks" in tags:
        return [
            {
                "cube": block.get("cube", block.get("cubeId")),
                "rows": block["elementCount"],
                "copy": block.get("replicated", False),
            }
            for block in json.loads(tags["blocks"])
        ]
    return [{"cube": tags["cube"], "rows": int(tags["elementCount"]), "copy": tags["state"] in COPIES}]


def _of_revision(
    blocks: list[dict[str, Any]], sizes: dict[str, int], dimensions: int, cube_size: int
) -> dict[str, Any]:
    originals = [block for block in blocks if not block["copy"]]
    width = -(-dimensions // 6)
    names = {(block["tree"], block["cube"]) for block in originals}
    above = {(tree, name[:end]) for tree, name in names for end in range(0, len(name), width)}
    children = defaultdict(set)
    for tree, node in names | above:
        if node:
            children[tree, node[:-width]].add(node)
    rows = sum(block["rows"] for block in originals)
    of_trees = defaultdict(int)
    for block in originals:
        of_trees[block["tree"]] += block["rows"]
    largest = max(of_trees.values(), default=0)
    r = 2**dimensions
    metrics = {
        "rows": rows,
        "cubes": len(names),
        "blocks": len(originals),
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "replicated_blocks": len(blocks) - len(originals),
        "replicated_rows": sum(block["rows"] for block in blocks) - rows,
        "height": max((len(name) // width + 1 for _, name in names), default=0),
        "min_height": math.ceil(math.log(math.ceil(largest / cube_size) * (r - 1) + 1, r))
        if originals
        else 0,
        "trees": len(of_trees),
        "fan_out": statistics.fmean(map(len, children.values())) if children else None,
        "max_fan_out": r,
        **_spreads(originals, {block["file"]: sizes[block["file"]] for block in originals}),
        "bytes_per_file": _spread(list(sizes.values())),
    }
    levels = {}
    for block in originals:
        key = len(block["cube"]) // width, (block["tree"], block["cube"]) not in above
        levels.setdefault(key, []).append(block)
    metrics["levels"] = [
        {
            "depth": depth,
            "kind": "leaf" if leaf else "inner",
            "cubes": len({(block["tree"], block["cube"]) for block in group}),
            "blocks": len(group),
            "files": len({block["file"] for block in group}),
            "rows": sum(block["rows"] for block in group),
            **_spreads(group, {block["file"]: sizes[block["file"]] for block in group}),
        }
        for (depth, leaf), group in sorted(levels.items())
    ]
    return metrics


def _spreads(blocks: list[dict[str, Any]], sizes: dict[str, int]) -> dict[str, Any]:
    rows, per_cube, per_file = defaultdict(int), defaultdict(int), defaultdict(int)
    for block in blocks:
        rows[block["tree"], block["cube"]] += block["rows"]
        per_cube[block["tree"], block["cube"]] += 1
        per_file[block["file"]] += 1
    return {
        "rows_per_cube": _spread(list(rows.values())),
        "rows_per_block": _spread([block["rows"] for block in blocks]),
        "bytes_per_file": _spread(list(sizes.values())),
        "blocks_per_cube": _spread(list(per_cube.values())),
        "blocks_per_file": _spread(list(per_file.values())),
    }


def _spread(values: list[int]) -> dict[str, float] | None:
    if not values:
        return None
    low, q1, median, q3, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "std": statistics.pstdev(values),
        "min": low,
        "q1": q1,
        "median": median,
        "q3": q3,
        "max": high,
    }
