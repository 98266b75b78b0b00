"""Run every command of README.md and docs/, each page in an empty folder, and say which do not work.

    python tools/commands.py                        # all pages, in a fresh clone and a fresh environment
    python tools/commands.py docs/start.md --venv .venv

Commands are lines of indented blocks, of ``bash`` and ``sh`` fences, and of the README's table. They run in the order
of the page, in a folder with the examples that the page names, or in the clone if they need it. Above a block,
``<!-- cannot run: REASON -->`` leaves it out, and ``<!-- exits with N: REASON -->`` expects another status than 0, 1 or
3. Plans are shortened by options that a line does not have. A command that is cut after ``--limit`` is no failure.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"<!-- (?:cannot run: (.*)|exits with (\d).*) -->")
CELL = re.compile(r"\| `(vebench [^`]+)` (?=\|)")
PROGRAMS = {"vebench", "python", "python3", "pip", "pytest", "make", "bash"}
IN_CLONE = ("tools/", "docs/", "tests/", "action/", "reports/")  # a command with such a path runs in the clone
UNCHANGED = {"--dry-run", "--suite", "--help", "--help-all", "|", "||", "&&", ";", ">"}
BRIEF = "--windows 2 --duration 20ms --warmup 10ms"
SHORTER = {
    "run": f"--budget 20s --passes 1 {BRIEF}",
    "tune": "--budget 20s",
    "compare": f"--budget 20s {BRIEF}",
    "check": "--budget 20s",
    "bisect": f"--budget 1m {BRIEF}",
    "history": f"--budget 1m {BRIEF}",
}


class Line(NamedTuple):
    text: str
    why_not: str = ""  # why it cannot run
    status: str = ""  # the expected exit status; empty: 0, 1 or 3 of vebench


def lines_of(page: Path) -> Iterator[Line]:
    """Yield the commands of a page, in its order."""
    fence, mark, before = None, ("", ""), ""
    for line in re.sub(r" *\\\n\s*", " ", page.read_text(encoding="utf-8")).splitlines():
        code = line.strip()
        if code.startswith("```"):
            fence = code.strip("`") if fence is None else None
        elif found := MARK.match(code):
            mark = found[1] or "", found[2] or ""
        elif fence in {"bash", "sh"} and code and not code.startswith("#"):
            known = code.split()[0] in PROGRAMS
            yield Line(code, *mark) if known else Line(code, mark[0] or "it does not start with a known program")
        elif fence is None and line.startswith("    "):
            if code.split()[0] in PROGRAMS and (not before or before.startswith(("    ", "<!--"))):
                yield Line(code, *mark)
        elif fence is None and code:
            mark = ("", "")
            yield from map(Line, CELL.findall(line) if page.name == "README.md" else ())
        before = line


def shortened(text: str) -> str:
    """Return a command with the options of a shorter plan that it lacks."""
    words = [*shlex.split(text, comments=True), ""]
    plan = SHORTER.get(words[1], "").split() if words[0] == "vebench" and not UNCHANGED.intersection(words) else []
    options = dict(zip(plan[::2], plan[1::2], strict=True))
    if "--resume" in words:
        options = {"--budget": "20s"}
    nothing_measured = {"history": "--backfill" not in words, "check": any(".jsonl" in word for word in words[3:4])}
    if nothing_measured.get(words[1]):
        options = {}
    added = [f"{flag} {value}" for flag, value in options.items() if flag not in words]
    return " ".join([re.sub(r"\s+#\s.*", "", text), *added])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="by default README.md and docs/")
    parser.add_argument("--venv", type=Path, help="an environment with vebench; by default a new one")
    parser.add_argument("--limit", type=float, default=300.0, help="the longest time of one command, in seconds")
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="commands-"))
    clone, venv = work / "clone", (given.venv or work / "venv").absolute()
    subprocess.run(["/usr/bin/env", "git", "clone", "--quiet", ROOT, clone], check=True)
    env = {**os.environ, "PATH": f"{venv}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": str(work / "cache")}
    env |= {"VIRTUAL_ENV": str(venv), "PIP_CONSTRAINT": str(clone / "tests/constraints.txt")}
    if given.venv is None:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--editable", f"{clone}[all]"], check=True, env=env)
    left_out, results = [], Counter[str]()
    for page in given.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = str(page.absolute().relative_to(ROOT))
        folder = work / name.replace("/", "-")
        folder.mkdir()
        for example in (ROOT / "docs/examples").glob("*.py"):
            if re.search(rf"\b{example.stem}(\.py|:\w)", page.read_text(encoding="utf-8")):
                shutil.copy(example, folder)
        for line in lines_of(page):
            first, *others = line.text.split()
            if line.why_not or ("-e" in others[:2] and first == "pip" and given.venv):
                left_out.append(f"  {name}: {line.text}\n    {line.why_not or 'not with --venv'}")
                continue
            in_clone = first in {"make", "pytest"} or any(word.startswith(IN_CLONE) for word in others)
            in_clone = in_clone or (first == "pip" and "-e" in others)
            text, began = shortened(line.text), time.monotonic()
            ended = ["/usr/bin/timeout", "--kill-after=10", str(given.limit), "/bin/bash", "-c", text]
            how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
            done = subprocess.run(ended, cwd=clone if in_clone else folder, env=env, check=False, **how)
            right = str(done.returncode) in (line.status or ("013" if first == "vebench" else "0"))
            result = "cut" if done.returncode == 124 else "answered" if right else "FAILED"
            results[result] += 1
            print(f"{result:8} {done.returncode} {time.monotonic() - began:4.0f} s  {name}: {text}", flush=True)
            if result == "FAILED":
                print("   ", *(done.stderr.strip() or done.stdout.strip()).splitlines()[-1:], flush=True)
    print("\nCannot run:", *left_out, sep="\n")
    print("", *(f"{count} {result}" for result, count in results.items()), f"{len(left_out)} cannot run", sep="\n")
    shutil.rmtree(work, ignore_errors=True)
    return 1 if results["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
