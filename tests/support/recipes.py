"""The recipes of the documents, run as they stand there."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "shared-memory.md"


def recipe(name: str) -> dict[str, Any]:
    """Run the Python that follows the comment ``<!-- recipe: name -->``; return the names that it has defined."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- recipe: {name} -->\n+```python\n(.*?)```", text, re.DOTALL)
    defined: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(block, PAGE, "exec"), defined)  # noqa: S102 - our own documents
    return defined
