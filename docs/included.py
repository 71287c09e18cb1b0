"""Put code into pages, as it is now: functions after ``<!-- code: file: function -->``, and first lines of modules.

A list after ``<!-- modules: write/write io/store -->`` has the first line of each module. Names are below the rooms of
`qbeast_core`, or begin with another package.

python docs/included.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"<!-- code: (\S+): (\w+) -->\n```python notest\n.*?```\n", re.DOTALL)
_LIST = re.compile(r"<!-- modules: ([^>]+?) -->\n(?:\n(?:- .*\n)+)?")
_FIRST_LINE = re.compile(r'^r?"""(.*?)(?:"""|$)', re.MULTILINE)
_PLACES = ("", "qbeast_core", "qbeast_core/table")


def with_code(text: str) -> str:
    """Return the text of a page with the code and the modules that its markers name."""
    text = _BLOCK.sub(lambda found: _block(*found.groups()), text)
    return _LIST.sub(lambda found: _list(found[1]), text)


def modules_of(text: str) -> list[Path]:
    """Return the modules that the lists of a page name."""
    return [_module(name) for found in _LIST.finditer(text) for name in found[1].split()]


def _list(names: str) -> str:
    lines = []
    for name in names.split():
        line = _FIRST_LINE.findall(_module(name).read_text())[0].replace("``", "`")
        lines.append(f"- `{name.removeprefix('qbeast_carbondata/')}.py`: {line}\n")
    return f"<!-- modules: {names} -->\n\n{''.join(lines)}"


def _module(name: str) -> Path:
    (found,) = (path for place in _PLACES if (path := ROOT / place / f"{name}.py").exists())
    return found


def _block(path: str, name: str) -> str:
    code = (ROOT / path).read_text()
    (function,) = (
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef) and node.name == name
    )
    lines = code.splitlines()[function.lineno - 1 : function.end_lineno]
    return "\n".join([f"<!-- code: {path}: {name} -->", "```python notest", *lines, "```", ""])


def main() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        if (new := with_code(text)) != text:
            page.write_text(new)


if __name__ == "__main__":
    main()
