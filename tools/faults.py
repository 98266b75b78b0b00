"""Tries faults and honest implementations as a user does: ``python tools/faults.py``, 30 minutes on 2 CPUs.

Each adapter of ``tests/adapters/wrong_*.py`` has one fault, those of ``honest.py`` none. Each is given to ``vebench
verify`` and a short ``vebench run``, on the task on which its fault can show. The pairs of ``tools/parted.py`` are
given to ``vebench verify A B`` (``--ways pairs``), and each example that it writes has to fail.

Printed is what was caught, under which name and in which time, and what has changed since the results on file. The exit
status is 1 if an honest one is accused, or a mistake gets through that was found before. Answers are kept as they come.
``--write`` files them in ``docs/faults.json`` and renews the table in ``docs/same-work.md``. ``--only`` takes names of
adapters, modules or pairs, also as patterns, such as ``Late*,wrong_ends``.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parents[1]
ADAPTERS, ENVIRONMENTS = HERE / "tests" / "adapters", HERE / "tests" / "environments"
FILED = HERE / "docs" / "faults.json"
PAGE = HERE / "docs" / "same-work.md"
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
HONEST = "honest"
CONTROL = "Copies"  # an honest adapter that is tried first: if it is accused, nothing else means anything
# A run whose cell is short, and long enough for faults that begin after seconds or tens of thousands of steps.
SHORT = (
    "--duration",
    "0.5",
    "--windows",
    "4",
    "--warmup",
    "0.5",
    "--passes",
    "1",
    "--no-interleave",
    "--no-base",
)
LONGEST = 400.0  # seconds of one command
UNNAMED = ("no known fault explains it", "run again, it failed", "no name for it was found")
ROUGH = ("rewards and ends agree", "first difference:", "first at environment")
WAYS = ("verify", "cell")
KINDS = {
    "wrong_late": "begins late: after steps, ends, resets or seconds",
    "wrong_layouts": "some environments or layouts only",
    "wrong_async": "asynchronous: what belongs to whom",
    "wrong_buffers": "buffers: overwritten, shared, torn",
    "wrong_seeds": "seeds and resets",
    "wrong_ends": "autoresets, flags, time limits",
    "wrong_rewards": "rewards",
    "wrong_actions": "actions",
    "wrong_pictures": "observations",
    "wrong_variants": "in the measured variant only",
    "wrong_claims": "reports and excuses",
    "wrong_arrays": "arrays, batches, ids, lazy rows",
    "wrong_for_all": "changes the whole process",
    "wrong_clocks": "clock, loop, judge, answers",
    "wrong_unwatched": "steps only while it is watched",
}


@dataclass(frozen=True)
class Adapter:
    """One adapter that is tried, with what its class says of itself in ``tried`` (``tests/adapters/altered.py``)."""

    module: str
    name: str
    about: str
    named: str
    task: str
    envs: int
    fraud: bool
    measured: bool
    harmless: bool

    @property
    def honest(self) -> bool:
        """Whether it has no fault."""
        return self.module == HONEST

    @property
    def target(self) -> str:
        """What ``--backend`` takes."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Found:
    """What one way of trying found: ``verdict``, its words, and the seconds of the commands.

    The verdict is that of the work, or ``failed`` if the backend raised or could not be used.
    """

    verdict: str
    words: str
    seconds: float

    def caught(self) -> bool:
        """Return whether a user would not trust the backend's rate."""
        return self.verdict in ("different", "failed", "struck")

    def outcome(self, adapter: Adapter) -> str:
        """Return ``named``, ``roughly``, ``unnamed`` or ``misnamed`` if it was caught, otherwise the verdict."""
        if not self.caught():
            return self.verdict
        if not self.words or any(words in self.words for words in UNNAMED):
            return "unnamed"
        if any(words in self.words for words in ROUGH):
            return "roughly"
        return "named" if re.search(adapter.named, self.words, re.IGNORECASE) else "misnamed"


def main() -> int:
    """Try them, print what was found, and what has changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="adapters or modules, such as DeadWorker,wrong_ends")
    parser.add_argument("--ways", default=",".join((*WAYS, "pairs")), help="verify, cell, pairs")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="tried at a time")
    parser.add_argument("--seed", default="0", help="of the commands")
    parser.add_argument(
        "--answers", type=Path, default=Path("faults-answers.jsonl"), help="gets a line for each answer"
    )
    parser.add_argument("--write", action="store_true", help="file all answers, and renew the table in the docs")
    asked = parser.parse_args()
    ways = asked.ways.split(",")
    accused = "pairs" in ways and try_pairs(asked.only, asked.seed)
    ways = [way for way in WAYS if way in ways]
    return int(try_adapters(asked, ways) or accused) if ways else int(accused)


def try_pairs(only: str, seed: str) -> bool:
    """Compare each pair, and print what was found. Returns whether an honest pair was accused."""
    sys.path[:0] = [str(HERE / "tools")]
    patterns = [pattern for pattern in only.split(",") if pattern]
    counts: Counter[str] = Counter()
    for name, honest, sides in importlib.import_module("parted").pairs():
        if patterns and not any(fnmatch(name, pattern) for pattern in patterns):
            continue
        with tempfile.TemporaryDirectory(prefix="vebench-faults-") as folder:
            status, out, err = command(Path(folder), "verify", *sides, "--seed", seed, "-f", "json")
            found = json.loads(out) if out else {"verdict": "none", "why": last_line(err)}
            script = Path(folder, ".vebench", "example.py")
            shows = script.exists() and run_in(Path(folder), str(script)).returncode == 1
        kind = "honest" if honest else "fault"
        counts[kind] += 1
        counts[f"{kind} different"] += status == 1
        counts["examples that fail"] += shows
        print(f"{kind}: {name}: {found['verdict']}, {found.get('field')}, {found.get('actions')}, {found.get('why')}")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return bool(counts["honest different"])


def try_adapters(asked: argparse.Namespace, ways: Sequence[str]) -> bool:
    """Try each adapter, and print what was found and what has changed. Returns whether anything is worse."""
    adapters = list(chosen(asked.only))
    before = json.loads(FILED.read_text()) if FILED.exists() else {}
    ((control, found),) = tried(list(chosen(CONTROL)), ways, 1, asked.seed)
    if place(control, found) == "accused":
        sys.exit(f"the commands themselves fail: {line(control, found)}")
    results: dict[str, dict[str, Found]] = {}
    for adapter, found in tried(adapters, ways, asked.processes, asked.seed):
        results[adapter.target] = found
        keep(asked.answers, adapter, found)
        print(line(adapter, found), flush=True)
    summary(adapters, results)
    worse = changed(adapters, results, before)
    if asked.write:
        write(read(asked.answers), before)
    return worse


def chosen(only: str) -> Iterator[Adapter]:
    """Yield the adapters that are asked for, those of all modules if ``only`` is empty."""
    sys.path[:0] = [str(ADAPTERS)]
    patterns = [pattern for pattern in only.split(",") if pattern]
    modules = sorted(path.stem for path in ADAPTERS.glob("wrong_*.py"))
    for module in [*modules, HONEST]:
        clock = time.perf_counter_ns
        contents = vars(importlib.import_module(module))
        time.perf_counter_ns = clock  # one of the modules replaces it
        for name, kind in contents.items():
            here = inspect.isclass(kind) and kind.__module__ == module and hasattr(kind, "tried")
            wanted = not patterns or any(fnmatch(name, pattern) or fnmatch(module, pattern) for pattern in patterns)
            if here and wanted and not name.startswith("_"):
                about = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
                yield Adapter(module, name, about, **vars(kind.tried))


def tried(
    adapters: Sequence[Adapter], ways: Sequence[str], processes: int, seed: str
) -> Iterator[tuple[Adapter, dict[str, Found]]]:
    """Try each adapter in all ways, several at a time, each on a CPU of its own. Yields them as they are done."""
    cpus: SimpleQueue[int] = SimpleQueue()
    for number in range(processes):
        allowed = sorted(os.sched_getaffinity(0))
        cpus.put(allowed[number % len(allowed)])

    def one(adapter: Adapter) -> tuple[Adapter, dict[str, Found]]:
        cpu = cpus.get()
        try:
            with tempfile.TemporaryDirectory(prefix="vebench-faults-") as folder:
                how = {"verify": by_verify, "cell": by_cell}
                return adapter, {way: how[way](adapter, Path(folder), cpu, seed) for way in ways}
        finally:
            cpus.put(cpu)

    with ThreadPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(one, adapter) for adapter in adapters]):
            yield done.result()


def by_verify(adapter: Adapter, folder: Path, _cpu: int, seed: str) -> Found:
    """Return what ``vebench verify`` says."""
    began = time.monotonic()
    layout = ("--num-envs", str(adapter.envs), "--seed", seed)
    status, out, err = command(folder, "verify", "-e", adapter.task, "-b", adapter.target, *layout, "-f", "json")
    seconds = time.monotonic() - began
    if not out.startswith("["):
        return Found("failed", last_line(err) or f"exit status {status}", seconds)
    (answer,) = json.loads(out)
    verdict = "failed" if answer.get("failed") else answer["verdict"]
    return Found(verdict, answer.get("fault") or answer.get("summary") or answer.get("reason") or "", seconds)


def by_cell(adapter: Adapter, folder: Path, cpu: int, seed: str) -> Found:
    """Return what a short run and the report on it say."""
    began = time.monotonic()
    layout = ("-w", "1", "--envs-per-worker", str(adapter.envs), "--pin", str(cpu), "--seed", seed)
    what = ("-e", adapter.task, "-b", adapter.target, *layout, *SHORT, "-o", "run.jsonl", "-q")
    status, _, err = command(folder, "run", *what)
    seconds = time.monotonic() - began
    file = folder / "run.jsonl"
    if not file.exists():
        return Found("failed", last_line(err) or f"exit status {status}", seconds)
    return of_cell([json.loads(each) for each in file.read_text().splitlines()], seconds)


def of_cell(lines: list[dict[str, Any]], seconds: float) -> Found:
    """Return what the lines of a run file with one cell say of its work."""
    by_type = {each["type"]: each for each in lines}
    cell = by_type.get("cell")
    if cell is None or cell["status"] != "ok":
        return Found("failed", str(cell and cell["reason"]), seconds)
    proof = by_type.get("proof", {}).get("proof")
    if proof is None:
        return Found("unproven", "", seconds)
    return Found(proof["verdict"], proof.get("fault") or proof.get("reason") or _mismatch(proof), seconds)


def _mismatch(proof: Mapping[str, Any]) -> str:
    first = proof.get("mismatch")
    return "" if not first else f"first difference: {first['field']} {first['found']} instead of {first['expected']}"


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with nothing known yet. Raises TimeoutExpired."""
    paths = os.pathsep.join(map(str, (ADAPTERS, ENVIRONMENTS, HERE / "tools")))
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}
    how: Any = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": LONGEST}
    return subprocess.run([sys.executable, *words], check=False, **how)


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command in an empty folder. Returns its exit status and what it printed."""
    try:
        done = run_in(folder, "-m", "vebench", *arguments)
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {LONGEST:.0f} s"
    return done.returncode, done.stdout, done.stderr


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def line(adapter: Adapter, found: Mapping[str, Found]) -> str:
    """Return one adapter as a line of the printed table."""
    cells = [
        f"{way}: {one.outcome(adapter)} in {one.seconds:.1f} s{f' ({one.words})' if one.words else ''}"
        for way, one in found.items()
    ]
    kind = "honest" if adapter.honest else "fraud" if adapter.fraud else "mistake"
    where = f"{adapter.task} x {adapter.envs}"
    return f"{place(adapter, found):>9}  {kind:7}  {adapter.target} on {where}: {'; '.join(cells)}"


def place(adapter: Adapter, found: Mapping[str, Found]) -> str:
    """Return which way caught it, ``THROUGH`` if none did; of an honest one ``fine`` or ``accused``."""
    caught = [way for way, one in found.items() if one.caught()]
    if adapter.honest:
        return "accused" if caught else "fine"
    if not caught:
        return "harmless" if adapter.harmless else "THROUGH"
    return "both" if len(caught) > 1 else caught[0]


def summary(adapters: Iterable[Adapter], results: Mapping[str, Mapping[str, Found]]) -> None:
    """Print the counts, and everything that got through, or is accused though it is honest."""
    there = [(adapter, results[adapter.target]) for adapter in adapters if adapter.target in results]
    for kind in ("mistake", "fraud", "honest"):
        mine = [
            (adapter, found)
            for adapter, found in there
            if kind == ("honest" if adapter.honest else "fraud" if adapter.fraud else "mistake")
        ]
        counts = Counter(place(adapter, found) for adapter, found in mine)
        print(
            f"\n{kind}: {len(mine)} tried, {', '.join(f'{count} {name}' for name, count in counts.items()) or 'none'}"
        )
        for way in WAYS:
            seen = [(adapter, found[way]) for adapter, found in mine if way in found]
            if seen:
                outcomes = Counter(one.outcome(adapter) for adapter, one in seen)
                times = sorted(one.seconds for _, one in seen)
                words = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
                print(f"  {way}: {words}; median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s")
        bad = "accused" if kind == "honest" else "THROUGH"
        for adapter, found in mine:
            if place(adapter, found) == bad:
                print(f"  {bad}: {adapter.target}: {adapter.about}")


def keep(path: Path, adapter: Adapter, found: Mapping[str, Found]) -> None:
    """Add what was found to the answers, so that nothing is lost if this is ended."""
    with path.open("a") as file:
        for way, one in found.items():
            file.write(json.dumps({"adapter": adapter.target, "way": way, **asdict(one)}) + "\n")


def read(path: Path) -> dict[str, dict[str, Found]]:
    """Return the last answers, by adapter and way."""
    found: dict[str, dict[str, Found]] = {}
    for body in map(json.loads, path.read_text().splitlines() if path.exists() else ()):
        adapter, way = body.pop("adapter"), body.pop("way")
        found.setdefault(adapter, {})[way] = Found(**body)
    return found


def changed(adapters: Iterable[Adapter], results: Mapping[str, Mapping[str, Found]], before: Mapping[str, Any]) -> bool:
    """Print what has another outcome than on file. Returns whether anything is worse."""
    worse = False
    for adapter in adapters:
        found = results.get(adapter.target)
        old = {way: Found(**one) for way, one in before.get(adapter.target, {}).items()}
        if found is None:
            continue
        for way, one in found.items():
            was = old.get(way)
            if was is not None and was.outcome(adapter) != one.outcome(adapter):
                print(f"changed: {adapter.target} {way}: {one.outcome(adapter)}, was {was.outcome(adapter)}")
        now = place(adapter, found)
        lost = now == "THROUGH" and not adapter.fraud and any(one.caught() for one in old.values())
        worse = worse or lost or now == "accused"
    return worse


def write(results: Mapping[str, Mapping[str, Found]], before: Mapping[str, Any]) -> None:
    """Put the results into the file and the page, beside those of adapters that were not tried now."""
    there = {adapter.target for adapter in chosen("")}
    merged = {target: found for target, found in before.items() if target in there}
    for target, found in results.items():
        if target not in there:
            continue
        merged[target] = {**merged.get(target, {}), **{way: asdict(one) for way, one in found.items()}}
    lines = ",\n".join(f"{json.dumps(target)}: {json.dumps(found)}" for target, found in sorted(merged.items()))
    FILED.write_text(f"{{\n{lines}\n}}\n")
    write_page(merged)


def write_page(filed: Mapping[str, Any]) -> None:
    """Put the table into the page, between its marks."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{section(filed)}\n{END}{after}")


def section(filed: Mapping[str, Any]) -> str:
    """Return as Markdown how many were caught by which way, by kind, and each one that gets through both."""
    adapters = [adapter for adapter in chosen("") if adapter.target in filed]
    found = {adapter.target: {way: Found(**one) for way, one in filed[adapter.target].items()} for adapter in adapters}

    def counted(module: str) -> str:
        mine = [found[one.target] for one in adapters if of_kind(one) == module]
        cells = []
        for way in WAYS:
            seen = [ways[way].caught() for ways in mine if way in ways]
            cells.append(f"{sum(seen)} of {len(seen)}")
        return " | ".join(cells)

    rows = ["| fault | caught by `verify` | in the cell |", "| --- | ---: | ---: |"]
    rows += [f"| {words} | {counted(module)} |" for module, words in KINDS.items()]
    rows.append(f"| none: honest backends, accused | {counted(HONEST)} |")
    through = [one for one in adapters if len(found[one.target]) > 1 and place(one, found[one.target]) == "THROUGH"]
    limits = ["| gets through | what it does | a mistake could look so |", "| --- | --- | --- |"]
    limits += [f"| {one.name} | {one.about} | {'no' if one.fraud else 'yes'} |" for one in through]
    return "\n".join(rows) + "\n" + ("\n" + "\n".join(limits) + "\n" if through else "")


def of_kind(adapter: Adapter) -> str:
    """Return which of ``KINDS`` an adapter is of."""
    return next((module for module in KINDS if adapter.module.startswith(module.removesuffix("s"))), adapter.module)


if __name__ == "__main__":
    sys.exit(main())
