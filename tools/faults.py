"""Tries faults and honest implementations as a user does: ``python tools/faults.py``, 30 minutes on 2 CPUs.

Each adapter of ``tests/adapters/wrong_*.py`` has one fault, those of ``honest.py`` none. Each is given to ``vebench
verify`` and a short ``vebench run``, on the task on which its fault can show. The pairs of ``tools/parted.py`` are
given to ``vebench verify A B`` (``--ways pairs``), and each example that it writes has to fail. An environment that
starts slower, holds more and leaks is given to a gate (``--ways gates``, 40 minutes), and so is an unchanged one.

Printed is what was caught, under which name and in which time, and what has changed since the results on file. The exit
status is 1 if an honest one is accused, or a mistake gets through that was found before. ``--write`` files the answers
and renews docs/evidence/faults.md. ``--only`` takes names of adapters, modules or pairs, or patterns (``Late*``).
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
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from evidence import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Answers = Mapping[str, "Found"]  # by the way of trying: verify, cell

HERE = Path(__file__).resolve().parents[1]
ADAPTERS, ENVIRONMENTS = HERE / "tests" / "adapters", HERE / "tests" / "environments"
FILED = HERE / "docs" / "evidence" / "data" / "fault-answers.json"
HONEST = "honest"
# A run whose cell is short, and long enough for faults that begin after seconds or tens of thousands of steps.
SHORT = ["--duration", "0.5", "--windows", "4", "--warmup", "0.5", "--passes", "1", "--no-interleave", "--no-base"]
LONGEST = 400.0  # seconds of one command
UNNAMED = ("no known fault explains it", "run again, it failed", "no name for it was found")
ROUGH = ("rewards and ends agree", "first difference:", "first at environment")
# Arguments of the environment in ``tests/environments/planted.py``. A process starts in about 0.15 s and has about
# 25 MiB of its own, so ``PLANTED`` starts and holds a fifth more than ``USUAL``.
USUAL = "seconds=0.6,mebibytes=40,leak=0,pause=0.0005"
PLANTED = "seconds=0.75,mebibytes=54,leak=1024,pause=0.0005"
SAID = {"startup": "startup: slower", "memory": "memory: larger", "leak": "memory grows by"}
KINDS = {
    "wrong_late": "begins late: after steps, ends, resets or seconds",
    "wrong_layouts": "some environments or layouts only",
    "wrong_async": "asynchronous: rows of the wrong environment",
    "wrong_buffers": "buffers: overwritten, shared, torn",
    "wrong_seeds": "seeds and resets",
    "wrong_ends": "autoresets, flags, time limits",
    "wrong_rewards": "rewards",
    "wrong_actions": "actions",
    "wrong_pictures": "observations",
    "wrong_variants": "in the measured variant only",
    "wrong_claims": "false reports and declarations",
    "wrong_arrays": "arrays, batches, ids, lazy rows",
    "wrong_for_all": "changes the whole process",
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
    measured: bool

    @property
    def target(self) -> str:
        """What ``--backend`` takes."""
        return f"{self.module}:{self.name}"

    @property
    def kind(self) -> str:
        return "honest" if self.module == HONEST else "mistake"

    def place(self, found: Answers) -> str:
        """Return which way caught it, ``THROUGH`` if none did; of an honest one ``fine`` or ``accused``."""
        caught = [way for way, one in found.items() if one.caught]
        if self.kind == "honest":
            return "accused" if caught else "fine"
        return "both" if len(caught) > 1 else caught[0] if caught else "THROUGH"


@dataclass(frozen=True)
class Found:
    """The result of one way of trying."""

    verdict: str  # of the work, or ``failed`` if the backend raised or could not be used
    words: str
    seconds: float  # of the command

    @property
    def caught(self) -> bool:
        """Whether a user would not trust the backend's rate."""
        return self.verdict in ("different", "failed", "struck")

    def outcome(self, adapter: Adapter) -> str:
        """Return ``named``, ``roughly``, ``unnamed`` or ``misnamed`` if it was caught, otherwise the verdict."""
        if not self.caught:
            return self.verdict
        if not self.words or any(words in self.words for words in UNNAMED):
            return "unnamed"
        if any(words in self.words for words in ROUGH):
            return "roughly"
        return "named" if re.search(adapter.named, self.words, re.IGNORECASE) else "misnamed"


def main() -> int:
    """Try them, print what was found, and what has changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="adapters or modules, such as DeadWorker,wrong_ends")
    parser.add_argument("--ways", default="verify,cell,pairs")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="tried at a time")
    parser.add_argument(
        "--times", type=int, default=20, help="gates on planted costs; on unchanged ones twice as often"
    )
    parser.add_argument("--seed", default="0", help="of the commands")
    parser.add_argument("--write", action="store_true", help="file all answers, and renew the page")
    asked = parser.parse_args()
    ways = asked.ways.split(",")
    accused = "pairs" in ways and try_pairs(asked.only, asked.seed)
    accused |= "gates" in ways and try_gates(asked.times)
    ways = [way for way in ("verify", "cell") if way in ways]
    return int((bool(ways) and try_adapters(asked, ways)) or accused)


def is_meant(only: str, *names: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in only.split(",") for name in names)


def try_pairs(only: str, seed: str) -> bool:
    """Compare each pair, and print what was found. Returns whether an honest pair was accused."""
    sys.path[:0] = [str(HERE / "tools")]
    counts: Counter[str] = Counter()
    for name, honest, sides in importlib.import_module("parted").pairs():
        if not is_meant(only, name):
            continue
        with tempfile.TemporaryDirectory(prefix="vebench-faults-") as folder:
            status, out, err = command(Path(folder), "verify", *sides, "--seed", seed, "-f", "json")
            found = json.loads(out) if out else {"verdict": "none", "why": last_line(err)}
            script = Path(folder, ".vebench", "example.py")
            shows = script.exists() and run_in(Path(folder), str(script)).returncode == 1
        kind = "honest" if honest else "fault"
        counts.update({kind: 1, f"{kind} different": status == 1, "examples that fail": shows})
        print(f"{kind}: {name}: {found['verdict']}, {found.get('field')}, {found.get('actions')}, {found.get('why')}")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return bool(counts["honest different"])


def try_gates(times: int) -> bool:
    """Gate on planted costs, as a test of pytest does. Print what was found. Returns whether unchanged code failed."""
    counts: Counter[str] = Counter()
    for kind, costs, number in (("planted", PLANTED, times), ("unchanged", USUAL, 2 * times)):
        measured = f'vector_env_rate("planted:Planted[{costs}]", windows=8, warmup=0.1, proof="off")'
        judged = f'env="planted:Planted[{USUAL}]", metric="rate,startup,memory"'
        for tried in range(1, number + 1):
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="vebench-faults-") as folder:
                test = f"def test(vector_env_rate):\n    {measured}.not_slower_than({judged})\n"
                Path(folder, "test_planted.py").write_text(test)
                text = run_in(Path(folder), "-m", "pytest", "-q", "-rfs", "test_planted.py").stdout
            outcome = re.search(r"1 (passed|failed|skipped)", text)
            counts[f"{kind}: {outcome[1] if outcome else 'no outcome'}"] += 1
            counts.update(f"{kind}: {name} found" for name, words in SAID.items() if words in text)
            shown = ", ".join(f"{words} {count}" for words, count in sorted(counts.items()) if words.startswith(kind))
            print(f"gates, {tried} of {number} in {time.monotonic() - began:.0f} s: {shown}", flush=True)
    print("".join(f"{words:<28} {count:>3}\n" for words, count in sorted(counts.items())))
    return counts["unchanged: failed"] > 0


def try_adapters(asked: argparse.Namespace, ways: list[str]) -> bool:
    """Try each adapter, and print what was found and what has changed. Returns whether anything is worse."""
    adapters = [one for one in all_adapters() if is_meant(asked.only, one.name, one.module)]
    filed: dict[str, dict[str, Any]] = json.loads(FILED.read_text()) if FILED.exists() else {}
    cpus: SimpleQueue[int] = SimpleQueue()
    allowed = sorted(os.sched_getaffinity(0))
    for number in range(asked.processes):
        cpus.put(allowed[number % len(allowed)])

    def one(adapter: Adapter) -> tuple[Adapter, Answers]:
        cpu = cpus.get()
        try:
            with tempfile.TemporaryDirectory(prefix="vebench-faults-") as folder:
                how = {"verify": by_verify, "cell": partial(by_cell, cpu)}
                return adapter, {way: how[way](adapter, Path(folder), asked.seed) for way in ways}
        finally:
            cpus.put(cpu)

    results: list[tuple[Adapter, Answers]] = []
    worse = False
    with ThreadPoolExecutor(asked.processes) as threads:
        for done in as_completed([threads.submit(one, adapter) for adapter in adapters]):
            adapter, found = done.result()
            results.append((adapter, found))
            old = {way: Found(**answer) for way, answer in filed.get(adapter.target, {}).items()}
            place = adapter.place(found)
            lost = place == "THROUGH" and any(answer.caught for answer in old.values())
            worse = worse or lost or place == "accused"
            print(f"{place:>9}  {adapter.kind:7}  {adapter.target} on {adapter.task} x {adapter.envs}:", end=" ")
            for way, answer in found.items():
                was = f", was {old[way].outcome(adapter)}" if way in old else ""
                print(f"{way}: {answer.outcome(adapter)}{was} in {answer.seconds:.1f} s ({answer.words})", end="; ")
            print(flush=True)
            filed.setdefault(adapter.target, {}).update({way: asdict(answer) for way, answer in found.items()})
    summary(results)
    if asked.write:
        lines = ",\n".join(f"{json.dumps(target)}: {json.dumps(found)}" for target, found in sorted(filed.items()))
        FILED.write_text(f"{{\n{lines}\n}}\n")
        record("faults", "Adapters", ("fault", "caught by `verify`", "caught in the cell"), rows(filed))
    return worse


def all_adapters() -> Iterator[Adapter]:
    """Yield the adapters of all modules."""
    sys.path[:0] = [str(ADAPTERS)]
    modules = sorted(path.stem for path in ADAPTERS.glob("wrong_*.py"))
    for module in [*modules, HONEST]:
        clock = time.perf_counter_ns
        contents = vars(importlib.import_module(module))
        time.perf_counter_ns = clock  # one of the modules replaces it
        for name, kind in contents.items():
            here = inspect.isclass(kind) and kind.__module__ == module and hasattr(kind, "tried")
            if here and not name.startswith("_"):
                about = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
                yield Adapter(module, name, about, **vars(kind.tried))


def by_verify(adapter: Adapter, folder: Path, seed: str) -> Found:
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


def by_cell(cpu: int, adapter: Adapter, folder: Path, seed: str) -> Found:
    """Return the contents of the run file of a short run with one cell."""
    began = time.monotonic()
    layout = ("-w", "1", "--envs-per-worker", str(adapter.envs), "--pin", str(cpu), "--seed", seed)
    what = ("-e", adapter.task, "-b", adapter.target, *layout, *SHORT, "-o", "run.jsonl", "-q")
    status, _, err = command(folder, "run", *what)
    seconds = time.monotonic() - began
    file = folder / "run.jsonl"
    if not file.exists():
        return Found("failed", last_line(err) or f"exit status {status}", seconds)
    lines = {line["type"]: line for line in map(json.loads, file.read_text().splitlines())}
    cell = lines.get("cell")
    if cell is None or cell["status"] != "ok":
        return Found("failed", str(cell and cell["reason"]), seconds)
    proof = lines.get("proof", {}).get("proof")
    if proof is None:
        return Found("unproven", "", seconds)
    first = proof.get("mismatch")
    words = first and f"first difference: {first['field']} {first['found']} instead of {first['expected']}"
    return Found(proof["verdict"], proof.get("fault") or proof.get("reason") or words or "", seconds)


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


def summary(results: list[tuple[Adapter, Answers]]) -> None:
    """Print the counts."""
    for kind in ("mistake", "honest"):
        mine = [(adapter, found) for adapter, found in results if adapter.kind == kind]
        places = Counter(adapter.place(found) for adapter, found in mine)
        print(f"\n{kind}: {len(mine)} tried: {dict(places)}")
        outcomes = Counter((way, one.outcome(adapter)) for adapter, found in mine for way, one in found.items())
        for (way, outcome), count in sorted(outcomes.items()):
            print(f"  {way}: {count} {outcome}")


def rows(filed: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield how many were caught by which way, by kind, and each one that gets through both."""
    adapters = [adapter for adapter in all_adapters() if adapter.target in filed]
    found = {one: {way: Found(**answer) for way, answer in filed[one.target].items()} for one in adapters}
    for module, words in {**KINDS, HONEST: "no fault: honest backends that were accused"}.items():
        mine = [answers for adapter, answers in found.items() if adapter.module == module]
        seen = [[answers[way].caught for answers in mine if way in answers] for way in ("verify", "cell")]
        yield words, *(f"{sum(each)} of {len(each)}" for each in seen)
    for adapter, answers in found.items():
        if len(answers) > 1 and adapter.place(answers) == "THROUGH":
            yield f"gets through: `{adapter.name}`, {adapter.about}", "no", "no"


if __name__ == "__main__":
    sys.exit(main())
