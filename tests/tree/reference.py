"""The tree built row by row and cube by cube, as the format words it: slow, the oracle of the fast one."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_WEIGHT = 2**31 - 1
LONGEST_CHAIN = 16  # halvings that part nothing, after which a cube stays a leaf


def weight(fraction: float) -> int:
    return int(min(max(fraction, 0.0), 1.0) * (2**32 - 1) - 2**31)


def fraction(w: int) -> float:
    return (w + 2**31) / (2**32 - 1)


@dataclass
class Node:
    cells: tuple[int, ...]
    depth: int
    rows: list[int]
    threshold: int = MAX_WEIGHT
    taken: list[int] = field(default_factory=list)


def cell_at(point: float, depth: int) -> int:
    """Walk down the halves of [0, 1]."""
    cell = 0
    for _ in range(depth):
        point *= 2
        bit = point >= 1
        cell = cell << 1 | bit
        point -= bit
    return cell


def build(points: list[tuple[float, ...]], weights: list[int], cube_size: int) -> list[Node]:
    """Thresholds and assignment of a new tree; every node that took a row."""
    actual: list[Node] = []

    def grow(node: Node, parent_fraction: float, free: set[int], chain: int) -> None:
        domain = len(node.rows)
        tree = domain * (1.0 - parent_fraction)
        leaf = tree <= cube_size or chain >= LONGEST_CHAIN or node.depth >= 32
        if not leaf:
            node.threshold = weight(min(parent_fraction + -(-cube_size // 2) / domain, 1.0))
        node.taken = [r for r in node.rows if r in free and weights[r] <= node.threshold]
        free -= set(node.taken)
        if free.isdisjoint(node.rows):
            node.threshold = MAX_WEIGHT  # no row is left for children: a leaf after all
        if node.taken:
            actual.append(node)
        if node.threshold == MAX_WEIGHT:
            return
        children: dict[tuple[int, ...], list[int]] = {}
        for r in node.rows:
            children.setdefault(tuple(cell_at(x, node.depth + 1) for x in points[r]), []).append(r)
        for cells in sorted(children):
            child = Node(cells, node.depth + 1, children[cells])
            same = len(child.rows) == len(node.rows)
            grow(child, fraction(node.threshold), free, chain + 1 if same else 0)

    if points:
        grow(Node((0,) * len(points[0]), 0, list(range(len(points)))), 0.0, set(range(len(points))), 0)
    return actual
