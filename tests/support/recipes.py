"""The recipes of the documents, run as they stand there."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "guides" / "train.md", DOCS / "reference" / "vector-envs.md")


def recipe(name: str) -> dict[str, Any]:
    """Run the Python that follows the comment ``<!-- recipe: name -->``; return the names that it has defined."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    (block,) = re.findall(rf"<!-- recipe: {name} -->\n+```python\n(.*?)```", text, re.DOTALL)
    defined: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(block, name, "exec"), defined)  # noqa: S102 - our own documents
    return defined
