"""Ways to damage a table; each returns the path of the damaged file."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl

from qbeast_core.io.directory import PageDirectory, dump_directory, parse_directory
from qbeast_core.io.encode import encode_data_file
from qbeast_core.io.footer import PageCuts
from qbeast_core.spec.blocks import WEIGHT_COLUMN

Add = dict[str, Any]
Damage = Callable[[Path, Add, list[str]], None]
"""Damages the add of a file, or the file; takes the indexed columns too."""


@dataclass(frozen=True)
class Spoiled:
    """A damaged file."""

    path: str


def spoil(table: Path, damage: Damage, *, indexed: list[str], at: int = 0) -> Spoiled:
    """Apply damage to one of the live files of a log without checkpoint (the `at`-th, modulo their number)."""
    places = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        places += [(commit, actions, action["add"]) for action in actions if "add" in action]
    commit, actions, add = places[at % len(places)]
    path = unquote(add["path"])
    damage(table, add, indexed)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    max((table / "_delta_log").glob("*.json")).touch()  # a cached version is identified by its commit
    return Spoiled(path)


def other_range(table: Path, column: str, **ends: Any) -> None:
    """Change the space of a column in revision 1, in a log of one commit."""
    commit = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    configuration = next(action["metaData"] for action in actions if "metaData" in action)["configuration"]
    revision = json.loads(configuration["qbeast.revision.1"])
    at = [transformer["columnName"] for transformer in revision["columnTransformers"]].index(column)
    revision["transformations"][at] |= ends
    configuration["qbeast.revision.1"] = json.dumps(revision)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def tags(**texts: str | None) -> Damage:
    def change(_table: Path, add: Add, _indexed: list[str]) -> None:
        for key, text in texts.items():
            name = {"layout": "qbeast.layout", "rules": "qbeast.rules"}.get(key, key)
            if text is None:
                add["tags"].pop(name)
            else:
                add["tags"][name] = text

    return change


def blocks(edit: Callable[[list[dict[str, Any]]], object]) -> Damage:
    def change(_table: Path, add: Add, _indexed: list[str]) -> None:
        values = json.loads(add["tags"]["blocks"])
        edit(values)
        add["tags"]["blocks"] = json.dumps(values, separators=(",", ":"))

    return change


def block(at: int = 0, **values: Any) -> Damage:
    return blocks(lambda blocks: blocks[at % len(blocks)].update(values))


def shift_block(at: int = 0, **steps: int) -> Damage:
    def edit(blocks: list[dict[str, Any]]) -> None:
        block = blocks[at % len(blocks)]
        block.update({key: block[key] + step for key, step in steps.items()})

    return blocks(edit)


def move_rows(one: int, other: int) -> Damage:
    """Count a row of one block in another."""

    def edit(blocks: list[dict[str, Any]]) -> None:
        blocks[one]["elementCount"] -= 1
        blocks[other]["elementCount"] += 1

    return blocks(edit)


def layout(edit: Callable[[dict[str, Any]], object]) -> Damage:
    def change(_table: Path, add: Add, _indexed: list[str]) -> None:
        values = json.loads(add["tags"]["qbeast.layout"])
        edit(values)
        add["tags"]["qbeast.layout"] = json.dumps(values)

    return change


def packed(bounds: bytes) -> str:
    return base64.b64encode(zlib.compress(bounds, wbits=-15)).decode()


def shift_bound(place: int, step: int) -> Damage:
    """Shift a bound of the box of a page, along any dimension."""

    def edit(layout: dict[str, Any]) -> None:
        bounds = bytearray(zlib.decompress(base64.b64decode(layout["p"]), wbits=-15))
        bounds[place % len(bounds)] = (bounds[place % len(bounds)] + step) % 256
        layout["p"] = packed(bytes(bounds))

    return layout(edit)


def shift_boxes(cells: int) -> Damage:
    """Shift the boxes of all pages along the first dimension."""

    def edit(layout: dict[str, Any]) -> None:
        layout["box"][0][0] += cells

    return layout(edit)


def shift_band(at: int, **steps: int) -> Damage:
    """Change numbers of a band: `rows`, `page_rows`, `weight`."""

    def edit(layout: dict[str, Any]) -> None:
        band = layout["bands"][at % len(layout["bands"])]
        for name, step in steps.items():
            band[["rows", "page_rows", "weight"].index(name)] += step

    return layout(edit)


def stats(edit: Callable[[dict[str, Any]], object]) -> Damage:
    def change(_table: Path, add: Add, _indexed: list[str]) -> None:
        values = json.loads(add["stats"])
        edit(values)
        add["stats"] = json.dumps(values)

    return change


def size(step: int) -> Damage:
    return lambda _table, add, _indexed: add.update(size=add["size"] + step)


def truncated(table: Path, add: Add, _indexed: list[str]) -> None:
    path = table / unquote(add["path"])
    path.write_bytes(path.read_bytes()[: add["size"] // 2])


def no_parquet(table: Path, add: Add, _indexed: list[str]) -> None:
    (table / unquote(add["path"])).write_bytes(b"x" * add["size"])


def damaged_tail(table: Path, add: Add, _indexed: list[str]) -> None:
    path = table / unquote(add["path"])
    data = bytearray(path.read_bytes())
    data[add["size"] - json.loads(add["tags"]["qbeast.layout"])["tail"] + 25] ^= 0xFF
    path.write_bytes(bytes(data))


def other_directory(edit: Callable[[PageDirectory], PageDirectory]) -> Damage:
    """Replace the page directory of the file by a valid one that says something else."""

    def change(table: Path, add: Add, _indexed: list[str]) -> None:
        path, layout = table / unquote(add["path"]), json.loads(add["tags"]["qbeast.layout"])
        data = path.read_bytes()
        start = len(data) - layout["tail"]
        end = start + layout["directory"]
        found = parse_directory(data[start:end], tail_bytes=layout["tail"], size_bytes=len(data))
        put = dump_directory(edit(found))
        path.write_bytes(data[:start] + put + data[end:])
        add["size"] = len(data) + len(put) - layout["directory"]
        layout |= {"directory": len(put), "tail": layout["tail"] + len(put) - layout["directory"]}
        add["tags"]["qbeast.layout"] = json.dumps(layout)

    return change


def changed(**numbers: int) -> Damage:
    """Add to the first number of some arrays of the page directory."""

    def edit(directory: PageDirectory) -> PageDirectory:
        arrays = {name: getattr(directory, name).copy() for name in numbers}
        for name, step in numbers.items():
            arrays[name][0, 0] += step
        return replace(directory, **arrays)

    return other_directory(edit)


def shifted_page(directory: PageDirectory) -> PageDirectory:
    """Return a directory whose second page begins a byte later."""
    sizes = directory.page_bytes.copy()
    sizes[0, 0] += 1
    sizes[0, 1] -= 1
    return replace(directory, page_bytes=sizes)


def deleted(table: Path, add: Add, _indexed: list[str]) -> None:
    (table / unquote(add["path"])).unlink()


def rewritten(
    edit: Callable[[pl.DataFrame, np.ndarray[Any, Any]], tuple[pl.DataFrame, np.ndarray[Any, Any]]],
) -> Damage:
    """Rewrite the file with changed rows; size and tail in the log are updated, so that only the rows are wrong."""

    def change(table: Path, add: Add, indexed: list[str]) -> None:
        path = table / unquote(add["path"])
        rows, layout = pl.read_parquet(path), json.loads(add["tags"]["qbeast.layout"])
        counts, page_rows, firsts = zip(*layout["bands"], strict=True)
        changed, weights = edit(
            rows.drop(WEIGHT_COLUMN, strict=False), np.repeat(np.array(firsts, np.int32), counts)
        )
        # The last row group takes rows that are more or less.
        cuts = PageCuts((*counts[:-1], counts[-1] + changed.height - rows.height), page_rows)
        hidden = weights if layout.get("hidden", True) else None
        encoded = encode_data_file(changed, weights=hidden, cuts=cuts, statistics=tuple(indexed))
        path.write_bytes(encoded.data)
        add["size"] = len(encoded.data)
        layout["tail"], layout["directory"] = encoded.tail_bytes, encoded.directory_bytes
        add["tags"]["qbeast.layout"] = json.dumps(layout)

    return change


def swap_ends(rows: pl.DataFrame, weights: np.ndarray[Any, Any]) -> Any:
    """Swap the first and the last row, with their hidden weights."""
    order = np.arange(rows.height)
    order[[0, -1]] = order[[-1, 0]]
    return rows[order], weights[order]


def reverse(rows: pl.DataFrame, weights: np.ndarray[Any, Any]) -> Any:
    order = np.arange(rows.height)[::-1]  # `reverse` of Polars 2.1 panics for a map of nulls
    return rows[order], weights[order]


def other_hidden_weight(rows: pl.DataFrame, weights: np.ndarray[Any, Any]) -> Any:
    changed = weights.copy()
    changed[rows.height // 2] = 2**31 - 1
    return rows, changed


def lose_a_row(rows: pl.DataFrame, weights: np.ndarray[Any, Any]) -> Any:
    return rows[:-1], weights[:-1]


def double_a_row(rows: pl.DataFrame, weights: np.ndarray[Any, Any]) -> Any:
    return pl.concat([rows, rows[-1:]]), np.concatenate([weights, weights[-1:]])
