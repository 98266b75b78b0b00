"""How large a checkout of vebench is: lines of source, tests and documents, options, finding codes, repeated names.

``python tools/counts.py [FOLDER]`` prints a table for the checkout in FOLDER, by default this one. Its files are read
as text and by ``ast``; only its command line is imported, by the checkout's own ``.venv`` or, if it has none, by this
Python.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = ("vebench", "backends", "reports")
SUFFIXES = {".py", ".c", ".h", ".html", ".css", ".js", ".jinja"}
SHORT = 60  # lines: a module with fewer, and with one importer, might as well be a part of that
OPTIONS = """
import json, typer.main, vebench.cli
group = typer.main.get_command(vebench.cli.app)
named = {"vebench": group, **group.commands}
print(json.dumps({name: [each.name for each in command.params] for name, command in named.items()}))
"""


def files(root: Path, *folders: str, suffixes: set[str]) -> list[Path]:
    """Return the files below these folders that have one of the suffixes, without compiled or hidden ones."""
    found = (path for folder in folders for path in sorted((root / folder).rglob("*")))
    return [
        path
        for path in found
        if path.suffix in suffixes
        and path.is_file()
        and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(root).parts)
    ]


def lines(paths: list[Path]) -> int:
    """Return how many lines these files have together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of the source by the names that they install as."""
    found = {}
    for path in files(root, *SOURCE, suffixes={".py"}):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts if parts[0] == "vebench" else ("vebench", *parts))
        found[name.removesuffix(".__init__")] = path
    return found


def options(root: Path) -> dict[str, list[str]]:
    """Return the parameters of each command, hidden ones included, and ``--help`` not."""
    own = root / ".venv/bin/python"
    with TemporaryDirectory() as scratch:
        package = Path(scratch, "vebench")
        package.mkdir()
        for path in (*(root / "vebench").iterdir(), root / "backends", root / "reports"):
            (package / path.name).symlink_to(path.resolve())
        program = f"import sys; sys.path.insert(0, {scratch!r})\n{OPTIONS}"
        python = str(own) if own.exists() else sys.executable
        done = subprocess.run([python, "-B", "-c", program], check=True, capture_output=True, text=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def defined(tree: ast.Module) -> set[str]:
    """Return the public names that a module defines: classes, functions and constants."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def imported(tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules among those ``known`` that a module imports, wherever in it, for types alone or not."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {name.value for name in node.args[:1] if isinstance(name, ast.Constant)}
    return found & known


def codes(trees: dict[str, ast.Module]) -> int:
    """Return how many codes a finding can have: the members of ``Code``."""
    classes = [node for name, tree in trees.items() if ".analysis" in name for node in tree.body]
    members = [node.body for node in classes if isinstance(node, ast.ClassDef) and node.name == "Code"]
    return sum(isinstance(line, ast.Assign) for body in members for line in body)


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    named = modules(root)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in named.items()}
    importers = Counter(other for name, tree in trees.items() for other in imported(tree, {*named}) - {name})
    repeated = Counter(name for tree in trees.values() for name in defined(tree))
    short = [name for name, path in named.items() if lines([path]) < SHORT and importers[name] == 1]
    asked = options(root)
    documents = [*root.glob("README.md"), *root.glob("CHANGELOG.md"), *files(root, "docs", suffixes={".md"})]
    rows = {
        "lines of source, with C and templates": lines(files(root, *SOURCE, suffixes=SUFFIXES)),
        "files of Python source": len(named),
        "options and arguments": sum(map(len, asked.values())),
        **{f"  of {command}": len(names) for command, names in asked.items()},
        "finding codes": codes(trees),
        "public names in more than one module": sum(count > 1 for count in repeated.values()),
        "lines of tests": lines(files(root, "tests", suffixes={".py"})),
        "lines of README, docs/ and CHANGELOG": lines(documents),
        f"modules under {SHORT} lines with one importer": len(short),
    }
    for label, number in rows.items():
        print(f"{label:<42}{number:>7,}")


if __name__ == "__main__":
    main()
