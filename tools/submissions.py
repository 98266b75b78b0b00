"""Which changed submissions ``vebench check-submission`` refuses, by which check, and whether it accepts honest ones.

``python tools/submissions.py [DIR...]`` submits 60 runs of fake worlds, and makes 200 mutants of the submissions in
DIR..., by default of these. Each has its checksums, digests of files and figures written again; every second one the
digest of the run in each cell, too. Its ``gain``, if it is accepted: by how much a figure exceeds its honest interval.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
from fake_runs import FakeRun

from vebench.analysis.submission import refusals, results_of
from vebench.analysis.summary import summarise
from vebench.errors import RunFileError
from vebench.results import store
from vebench.results.header import machine_fingerprint
from vebench.results.records import RunRecord, sealed
from vebench.results.submission import FILES, MACHINE, MANIFEST, RUN, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Line = dict[str, Any]
HONEST, MUTANTS = 60, 200


def key(line: Line) -> tuple[Any, ...]:
    return line["env"], line["backend"], str(line["options"]), line["workers"], line["repeat"]


def rate(counts: Iterable[Line]) -> float:
    return sum(one["rows"] for one in counts) / sum(one["ns"] for one in counts)


@dataclass
class Mutant:
    """A submission that is being changed. ``other`` is one of another machine, ``twin`` another run on this one."""

    lines: list[Line]
    files: dict[str, Any]
    draw: Random
    other: Any = None
    twin: Any = None
    states: bool = True
    last: Callable[[Path], object] = id

    @staticmethod
    def of(folder: Path, draw: Random) -> Mutant:
        lines = [json.loads(line) for line in (folder / RUN).read_text().splitlines()]
        return Mutant(lines, {name: json.loads((folder / name).read_text()) for name in FILES[1:]}, draw)

    def all(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["type"] == kind and line.get("windows") != []]

    def pick(self) -> Line:
        """Return a cell whose rows are proven."""
        proven = [key(proof) for proof in self.all("proof")]
        return self.draw.choice([cell for cell in self.all("cell") if key(cell) in proven])

    def write(self, folder: Path, *, digests: bool) -> Path:
        """Write it to a new folder, as one who knows of checksums and figures, and of the run's digests or not."""
        manifest = self.files[MANIFEST]
        with suppress(ValueError):  # what is no header has no digest
            header = msgspec.convert(self.lines[0], RunRecord)
            for line in self.lines[1:] if digests else ():
                line["run"] = header.digest
            self.files[MACHINE] |= {"id": machine_fingerprint(header)} if digests else {}
        plain = [{name: value for name, value in line.items() if name != "crc32"} for line in self.lines]
        run = b"".join(sealed(json.dumps(line, separators=(",", ":")).encode()) for line in plain)
        with suppress(Exception):  # what is no run has no figures
            if self.states:
                manifest["results"] = msgspec.to_builtins(results_of(summarise(store.parse(run, "")[0])))
        folder.mkdir()
        (folder / RUN).write_bytes(run)
        for name in FILES[1:3]:
            (folder / name).write_text(json.dumps(self.files[name]))
        self.last(folder)
        manifest["files"] = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        (folder / MANIFEST).write_text(json.dumps(manifest))
        return folder


def scaled(it: Mutant, by: float, *, of: str, names: str) -> None:
    """Multiply counts of one window, of all in one pass, of all passes of a cell, or of all cells of a backend."""
    loops = [cell for cell in it.all("cell") if cell["backend"] == "for-loop"]
    one = it.draw.choice(loops) if of == "reference" else it.pick()
    same = {"backend": slice(1, 3), "cell": slice(4), "reference": slice(4)}.get(of, slice(5))
    for line in [line for line in it.all("cell") + it.all("proof") if key(line)[same] == key(one)[same]]:
        counts = line.get("windows") or [line["proof"]]
        for each in [it.draw.choice(counts)] if of == "window" else counts:
            each |= {name: max(1, round(each[name] * by)) for name in names.split() if each.get(name)}


def raised(it: Mutant, by: float, *, names: str) -> None:
    """Raise counts of all passes of a cell, with whole batches, and what its proofs have seen of them."""
    one = it.pick()
    for cell in [cell for cell in it.all("cell") if key(cell)[:4] == key(one)[:4]]:
        for window in cell["windows"]:
            window |= {name: round(window[name] * by) for name in names.split() if window.get(name)}
            window["rows"] -= window["rows"] % cell["batch_size"]
        for proof in [line["proof"] for line in it.all("proof") if key(line) == key(cell)]:
            proof["timed_rows"] = sum(window["rows"] for window in cell["windows"])
            proof["of_steps"] = round(proof["of_steps"] * (by if "of_steps" in names else 1))


def stated(it: Mutant, by: float) -> None:
    it.states = False
    one = it.draw.choice([one for one in it.files[MANIFEST]["results"] if one["frames_per_second"]])
    one["frames_per_second"] = {name: value and value * by for name, value in one["frames_per_second"].items()}


def replaced(it: Mutant, of: str) -> None:
    """Replace the slower half of a pass's windows by the faster, or all passes of a cell by the fastest."""
    one = it.pick()
    same = [cell for cell in it.all("cell") if key(cell)[:4] == key(one)[:4]]
    best = max((cell["windows"] for cell in same), key=rate)
    for cell in same if of == "cell" else [one]:
        half = sorted(cell["windows"], key=lambda window: rate([window]))[len(cell["windows"]) // 2 :]
        cell["windows"] = deepcopy(best if of == "cell" else half + half)


def dropped(it: Mutant, which: str) -> None:
    """Drop lines, and lower the number of planned cells; or windows of a cell."""
    one = it.pick()
    del one["windows"][{"window": -1, "windows": 3}.get(which, 99) :]
    gone: Callable[[Line], bool] = {
        "pass": lambda line: key(line) == key(one),
        "cell": lambda line: key(line)[:4] == key(one)[:4],
        "last pass": lambda line: line["repeat"] == it.lines[0]["spec"]["repeats"] - 1,
        "a loop": lambda line: line["backend"] == "for-loop" and line["repeat"] == 1,
        "yardsticks": lambda line: line["backend"] == "yardstick",
        "proof": lambda line: line["type"] == "proof" and key(line) == key(one),
        "proofs": lambda line: line["type"] == "proof",
    }.get(which, lambda _: False)
    it.lines[0]["cells"] -= sum(map(gone, it.all("cell")))
    it.lines[1:] = [line for line in it.lines[1:] if not gone(line)]


def put(it: Mutant, change: tuple[str, Any]) -> None:
    """Write a value at paths into the header, a file, or one drawn cell or proof."""
    parts = {"head": it.lines[0], "cell": it.pick(), "proof": it.draw.choice(it.all("proof"))}
    for path in change[0].split():
        at: Any = parts | {name.removesuffix(".json"): content for name, content in it.files.items()}
        *names, last = (int(name) if name.isdigit() else name for name in path.split("."))
        for name in names:
            at = at[name]
        at[last] = change[1]


def swapped(it: Mutant, parts: str) -> None:
    """Take the machine of another submission, in machine.json alone or in the header, too."""
    it.files[MACHINE] = it.other.files[MACHINE]
    it.lines[0]["host"] = it.other.lines[0]["host"] if "header" in parts else it.lines[0]["host"]


def copied(it: Mutant, seed: int) -> None:
    """Give a cell the proof of another, with its own number of rows, and the same seed or another."""
    one, other = it.draw.sample(it.all("proof"), 2)
    one["proof"] = other["proof"] | {"timed_rows": one["proof"]["timed_rows"], "seed": other["proof"]["seed"] + seed}


def mixed(it: Mutant, which: str) -> None:
    """Take cells of another run on this machine, with their proofs: all, those of one task, or the faster ones."""
    theirs, env = {key(cell): cell for cell in it.twin.all("cell")}, it.pick()["env"]
    taken = {
        key(cell)
        for cell in it.all("cell")
        if which == "all"
        or (which == "task" and cell["env"] == env)
        or (which == "faster" and rate(theirs[key(cell)]["windows"]) > rate(cell["windows"]))
    }
    cells = [theirs[key(one)] if key(one) in taken else one for one in it.lines[1:] if one["type"] == "cell"]
    own = [proof for proof in it.all("proof") if key(proof) not in taken]
    it.lines[1:] = [*cells, *own, *(proof for proof in it.twin.all("proof") if key(proof) in taken)]


def filled(it: Mutant, change: tuple[str, Any]) -> None:
    """Write a value into these fields of all windows."""
    for cell in it.all("cell"):
        cell["windows"] = [window | dict.fromkeys(change[0].split(), change[1]) for window in cell["windows"]]


def moved(it: Mutant, names: str) -> None:
    """Give a cell other CPUs than it had."""
    one = it.pick()
    one |= {name: [cpu + 1 for cpu in one["cpus"]] for name in names.split()}


def spoilt(it: Mutant, what: str) -> None:
    """Change the folder at the end."""
    again = sealed(json.dumps(it.pick()).encode())
    it.last = {
        "more": lambda folder: (folder / "more.txt").write_text("x"),
        "fewer": lambda folder: (folder / FILES[2]).unlink(),
        "link": lambda folder: (folder / "more.txt").symlink_to(folder / RUN),
        "cut": lambda folder: (folder / RUN).write_bytes((folder / RUN).read_bytes()[:-99]),
        "twice": lambda folder: (folder / RUN).write_bytes((folder / RUN).read_bytes() + again),
    }[what]


RISES, CPU, DEV, NUMPY = (1.03, 1.1, 1.5, 2), "host.cpu_model", "0.1.0.dev1", "packages.numpy"
HOSTILE = ("<b onclick=x>", "a\x1b[2Jb", "a\u202eb", "../../x", "/etc/passwd", "x" * 10_000)
NAMED = ("cell.verdict_reason", "submission.command", "head.started", f"head.{CPU} machine.{CPU}", "cell.env")
NUMBERS, COUNTED = (float("nan"), -1, 10**30, 1e308, "1"), ("cell.windows.3.rows", "proof.proof.of_steps")
PLAN = {"rounds": 24, "duration": 1.0, "envs": ["Hopper-v5"], "workers": [9], "seed": 1, "proof": "off", "repeats": 2}
PROOF = (("proof.proof.num_envs", 99), ("proof.proof.steps", 10**12), ("cell.verdict", "different"))
RENAMED = ((f"head.{NUMPY}", "9.0"), (f"{NUMPY}.version", "9.0"), (f"head.{NUMPY} {NUMPY}.version", "9.0"))
VEBENCH = "head.packages.vebench packages.vebench.version submission.vebench"
PINS = (("head.spec.pin.cpus", "none"), ("head.host.pinning machine.host.pinning", False))
MACHINES = ((f"machine.{CPU}", "Fast"), ("machine.host.memory_bytes", 1 << 40))
# By kind: the checks that are right to refuse it, what changes it, and with what strengths or in which places.
KINDS: dict[str, tuple[str, Callable[[Mutant, Any], object], tuple[Any, ...]]] = {
    "rows of a cell": ("counts work", partial(scaled, of="cell", names="rows"), RISES),
    "rows of a pass": ("counts work", partial(scaled, of="pass", names="rows"), RISES),
    "rows of a window": ("counts work", partial(scaled, of="window", names="rows"), (1.1, 1.5, 2, 10)),
    "rows of a backend": ("counts work", partial(scaled, of="backend", names="rows"), RISES),
    "rows, also in proofs": ("counts work", partial(raised, names="rows resets"), RISES),
    "rows and CPU time": ("counts work", partial(raised, names="rows resets cpu_ns of_steps"), RISES),
    "all counts, by one share": ("counts work", partial(raised, names="rows resets of_steps"), RISES),
    "window times": ("counts work", partial(scaled, of="cell", names="ns"), (0.97, 0.9, 0.7, 0.5)),
    "reference slowed": ("counts work", partial(scaled, of="reference", names="rows"), (0.5, 0.8)),
    "figures alone": ("stated", stated, (1.03, 1.5, 2)),
    "windows replaced": ("counts work", replaced, ("pass", "cell")),
    "lines dropped": ("complete", dropped, ("window", "pass", "cell", "last pass", "windows", "a loop", "yardsticks")),
    "proofs dropped": ("work", dropped, ("proof", "proofs")),
    "proofs copied": ("work", copied, (0, 1)),
    "proofs edited": ("work findings", put, PROOF),
    "machine.json": ("machine", put, MACHINES),
    "machine": ("machine one-run pinning plan", swapped, ("machine.json", "machine.json, header")),
    "CPU renamed": ("machine one-run", put, ((f"head.{CPU}", "Fast"), (f"head.{CPU} machine.{CPU}", "Fast"))),
    "packages": ("one-run packages", put, RENAMED),
    "vebench": ("release stated packages", put, (("head.packages.vebench", "99.0"), (VEBENCH, DEV), (VEBENCH, "99.0"))),
    "plan": ("plan", put, tuple((f"head.spec.{name}", value) for name, value in PLAN.items())),
    "pinning": ("plan pinning", put, PINS),
    "suite or division": ("plan stated", put, (("submission.suite", "mujoco-5/2"), ("submission.division", "open"))),
    "two runs mixed": ("one-run", mixed, ("task", "faster", "all")),
    "load hidden": ("counts undisturbed", filled, (("others_ns", 0), ("others_ns steal_ns switches", 0))),
    "CPUs of a cell": ("pinning findings", moved, ("cpus", "cpus affinity", "affinity")),
    "names": ("names stated one-run complete files", put, tuple((path, text) for text in HOSTILE for path in NAMED)),
    "files": ("files", spoilt, ("more", "link", "cut", "fewer", "twice")),
    "numbers": ("files", put, tuple((path, value) for value in NUMBERS for path in COUNTED)),
}


def refused(folder: Path) -> set[str]:
    try:
        return {each.check for each in refusals(read(folder))}
    except RunFileError:
        return {"files"}


def figures(folder: Path, end: str) -> dict[Any, float]:
    return {
        (one["env"], one["backend"], one["workers"], name): one[name][end]
        for one in json.loads((folder / MANIFEST).read_text())["results"]
        for name in ("frames_per_second", "speedup")
        if one[name] and one[name][end]
    }


def main(*given: str) -> None:
    with TemporaryDirectory() as scratch:
        room, runs = Path(scratch), [FakeRun(seed) for seed in range(HONEST)]
        honest = {run.submitted(room / str(seed)): run for seed, run in enumerate(runs)}
        found = {folder: refused(folder) for folder in (*honest, *map(Path, given))}
        alarms = [folder for folder in found if found[folder] - honest.get(folder, runs[0]).may_lack]
        print(f"{len(found)} honest, {sum(not each for each in found.values())} accepted, false alarms:", *alarms)
        bases = [*map(Path, given)] or [folder for folder in honest if not found[folder]]
        loaded = [folder for folder in honest if "undisturbed" in found[folder]]
        table: Counter[tuple[str, int, str]] = Counter()
        for number in range(MUTANTS):
            kind, draw = [*KINDS][number // 2 % len(KINDS)], Random(number)  # noqa: S311 - as above
            right, change, strengths = KINDS[kind]
            strength, hidden = draw.choice(strengths), kind == "load hidden"
            base = draw.choice(loaded if hidden else bases)
            it = Mutant.of(base, draw)
            others = (Mutant.of(folder, draw) for folder in draw.sample([*honest], HONEST))
            it.other = next(one for one in others if one.files[MACHINE] != it.files[MACHINE])
            if base in honest and kind == "two runs mixed":
                it.twin = Mutant.of(honest[base].again(number).submitted(room / f"twin {number}"), draw)
            change(it, strength)
            mutant = it.write(room / f"mutant {number}", digests=bool(number % 2))
            checks = refused(mutant) - (set() if hidden else found[base])
            how = "right" if checks & {*right.split()} else "other" if checks else "accepted"
            table[kind, number % 2, how] += 1
            if how != "right":
                now, was = figures(mutant, "median"), figures(base, "high")
                gain = max((now[name] / was[name] for name in now.keys() & was.keys()), default=1) - 1
                print(f"{how}: {kind}, {strength!r:.60}, {('no ', '')[number % 2]}digests, gain {gain:.1%}", *checks)
        print("mutants refused rightly, otherwise, accepted; the same with digests")
        ways = [(digests, how) for digests in (0, 1) for how in ("right", "other", "accepted")]
        for kind in KINDS:
            print(f"{kind:24}", *(f"{table[kind, *way]:4}" for way in ways))
        print(f"{'all':24}", *(f"{sum(table[kind, *way] for kind in KINDS):4}" for way in ways))


if __name__ == "__main__":
    main(*sys.argv[1:])
