"""Words that readers stumbled over stay out of pages, help and messages; generated pages are what the tool writes."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Context
from support.commands import registered
from support.places import TOOLS

from vebench import cli

ROOT = Path(__file__).parents[1]
TOP = ("start", "install", "faq", "other-tools", "gallery", "glossary", "index")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in TOP), *(ROOT / "docs").glob("[!e]*/*.md"))
BANNED = re.compile(
    r"\bin turn\b|(?<![.\w-])figures?\b(?![.\w(])|(?<!twice )(?<!half )\bas many\b(?!.{0,60}\bas\b)"
    r"|(?<![Tt]here )\bis no (?!longer)|\b(do|does|did) other work\b|\bends? with (status )?\d|\bbesides\b|\bbut for\b",
    re.DOTALL,
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each page, help and string literal."""
    yield from ((str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")) for page in PAGES)
    for name, command in {**registered(), "": cli.app}.items():
        context = Context(command, info_name=name)
        context.meta["help all"] = True
        yield f"vebench {name} --help-all", command.get_help(context)
    for path in (path for folder in ("vebench", "backends", "reports") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_no_text_has_a_word_that_readers_stumble_over() -> None:
    assert [(place, found[0]) for place, text in texts() for found in BANNED.finditer(text)] == []


@pytest.mark.parametrize("name", ["commands", "findings", "backends", "columns", "interface"])
def test_a_generated_page_is_what_the_tool_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    page = runpy.run_path(str(TOOLS / "pages.py"))["page"]
    assert ROOT.joinpath("docs", "reference", f"{name}.md").read_text(encoding="utf-8") == page(name)
