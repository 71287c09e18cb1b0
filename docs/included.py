"""Put functions into pages: a block of code after ``<!-- code: file: function -->`` is that function, as it is now.

python docs/included.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"<!-- code: (\S+): (\w+) -->\n```python notest\n.*?```\n", re.DOTALL)


def with_code(text: str) -> str:
    """Return the text of a page with the code that its markers name."""
    return _BLOCK.sub(lambda found: _block(*found.groups()), text)


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
