"""How large a checkout of vebench is: lines, modules, options, constants, repeated names, exceptions, riddles.

``python tools/counts.py [FOLDER]`` prints a table for the checkout in FOLDER, by default this one. Its files are read
as text and by ``ast``. Only its command line is imported, by the checkout's own ``.venv`` or, if it has none, by this
Python.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = ("vebench", "backends", "reports")
SUFFIXES = {".py", ".c", ".h", ".html", ".css", ".js", ".jinja"}
OPTIONS = """
import vebench.cli
def count(command):
    return len(command.params) + sum(map(count, getattr(command, "commands", {}).values()))
print(count(vebench.cli.app))
"""
# Words of docstrings and comments that make a reader look for what is meant.
RIDDLES = {
    "that of, those of, those that": r"\b(that|those) of\b|\bthose that\b",
    "sentences that begin with What": r"(^|[.:;] |\"\"\")What\b(?![^.]*\?)",
    "of which": r"\bof which\b",
    "likewise, same reason, see above": r"\b(likewise|same reason|see above)\b",
}


def files(root: Path, *folders: str, suffixes: set[str]) -> list[Path]:
    """Return the files below these folders that have one of the suffixes, without compiled or hidden ones."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            hidden = any(part.startswith((".", "__pycache__")) for part in path.relative_to(root).parts)
            if path.suffix in suffixes and path.is_file() and not hidden:
                found.append(path)
    return found


def lines(paths: list[Path]) -> int:
    """Return the number of lines of these files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def options(root: Path) -> int:
    """Return the number of parameters of all commands, hidden ones included, and ``--help`` not."""
    own = root / ".venv/bin/python"
    with TemporaryDirectory() as scratch:
        package = Path(scratch, "vebench")
        package.mkdir()
        for path in (*(root / "vebench").iterdir(), root / "backends", root / "reports"):
            (package / path.name).symlink_to(path.resolve())
        program = f"import sys; sys.path.insert(0, {scratch!r})\n{OPTIONS}"
        python = str(own) if own.exists() else sys.executable
        return int(subprocess.run([python, "-B", "-c", program], check=True, capture_output=True, text=True).stdout)


def assigned(tree: ast.Module) -> set[str]:
    """Return the names that a module assigns at its top level."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def defined(tree: ast.Module) -> set[str]:
    """Return the public names that a module defines: classes, functions and constants."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    names = assigned(tree) | {node.name for node in tree.body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


def prose(text: str, tree: ast.Module) -> str:
    """Return the docstrings and comments of a module."""
    holders = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, holders)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found += [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(found)


def codes(trees: list[ast.Module]) -> int:
    """Return how many codes a finding can have: the members of ``Code``."""
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Code"]
    return sum(isinstance(line, ast.Assign) for each in classes for line in each.body)


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    texts = [path.read_text(encoding="utf-8") for path in files(root, *SOURCE, suffixes={".py"})]
    trees = [ast.parse(text) for text in texts]
    python = files(root, *SOURCE, "tests", "tools", "docs", suffixes={".py"})
    repeated = Counter(name for tree in trees for name in defined(tree))
    constants = [name for tree in trees for name in assigned(tree) if name.strip("_").isupper()]
    documents = [*root.glob("README.md"), *root.glob("CHANGELOG.md"), *files(root, "docs", suffixes={".md"})]
    said = "\n".join(prose(text, tree) for text, tree in zip(texts, trees, strict=True))
    rows = {
        "lines of source, with C and templates": lines(files(root, *SOURCE, suffixes=SUFFIXES)),
        "modules": len(trees),
        "lines of tests": lines(files(root, "tests", suffixes={".py"})),
        "lines of tools": lines(files(root, "tools", suffixes={".py"})),
        "lines of README, docs/ and CHANGELOG": lines(documents),
        "options and arguments": options(root),
        "codes of findings": codes(trees),
        "noqa, with tests, tools and docs": sum(path.read_text(encoding="utf-8").count("# noqa") for path in python),
        "constants": len(constants),
        "public names in more than one module": sum(count > 1 for count in repeated.values()),
        **{label: len(re.findall(pattern, said, re.MULTILINE)) for label, pattern in RIDDLES.items()},
    }
    for label, number in rows.items():
        print(f"{label:<42}{number:>7,}")


if __name__ == "__main__":
    main()
