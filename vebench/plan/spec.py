"""``RunSpec``, whose fields declare the options of the command line and of Python, and the fixed plans of suites."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal

from vebench.backends import registry
from vebench.backends.entry import MAX_COUNT
from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.training import ALGORITHMS, LIBRARIES
from vebench.child.actions import TAPED, PolicyChoice, parse_policy
from vebench.errors import UsageError, did_you_mean, shown
from vebench.machine.kernel import PIN_POLICIES
from vebench.plan import grammar
from vebench.plan.grammar import ADVANCED, HOW_LONG, WHAT, WHERE, BackendChoice, Hosts, LearnerStep, Option, Pinning

MAX_PASSES = 1 << 10
PER_NODE: Literal["node"] = "node"
FRESH, FORK = "fresh", "fork"
PASSES_OF_ALL = 2  # the number of passes that all cells of a race have
TOLERANCE = 0.1  # the share by which a backend may become worse, by default
MARGIN = 0.05  # the share of the highest rate that a simpler setting may lack, by default
_WORSE = "How much worse a backend may be: 5%, or by task 10%,Pong=5%,Ant=off (off never fails)."
MOST_WORSE = Option("tolerance", ("--tolerance",), grammar.VERDICT, "SHARE", _WORSE, grammar.tolerance(TOLERANCE))
_JUDGED = "What to judge: rate, startup, memory, or several. check also takes speedup and fps."
METRICS = Option("metrics", ("--metric",), grammar.VERDICT, "METRIC", _JUDGED, grammar.judged())


def setting(kind: grammar.Kind, group: str, metavar: str, meaning: str, *flags: str, default: Any = ...) -> Any:
    """Return a field of ``RunSpec`` with the option that sets it. By default, the flag is the field's name."""
    given = {} if default is ... else {"default": default}
    return field(**given, metadata={"flags": flags, "option": (group, metavar, meaning, kind)})


_ENV_NAMES = grammar.listed(
    grammar.parse_envs, lambda: [short_name(name) for suite in SUITES.values() for name in suite.tasks]
)
_CHOICES = grammar.listed(grammar.parse_backends, lambda: [entry.name for entry in registry.ENTRIES])
_WARMUP = grammar.seconds(or_none=True)
_TIME, _SEED = grammar.seconds(), grammar.whole(0, 2_000_000_000)  # environment i gets seed + i, of 32 bits
_OFF, _LEARNS = grammar.switch(named=False), grammar.parsed(grammar.parse_learner)
_ENVS = "Environments: Pong, 'CartPole[max_episode_steps=50]', MODULE:ID or MODULE:CALLABLE."
_BACKENDS = (
    f"Backends: NAME, 'NAME[KEY=VALUE]', NAME@PYTHON, MODULE:CLASS or all-peers.  [default: {registry.MEASURED}]"
)
_COUNTS = "Numbers of workers: 8, 1..256 (doubles), 1..16:+5 (adds) or 1..81:*3 (multiplies).  [default: 1..CPUS]"
_EACH = "Environments of each worker.  [default: 1]"
_UNTIL = "Add passes until each interval is within this share of its rate, such as 2%."
_BUDGET = "Longest time of the run. Cells that decide most come first. none: no limit."
_POLICY = "Chooses actions: mlp:64x64, nature-cnn[device=cuda], sleep:1ms, MODULE:FUNCTION.  [default: tape (random)]"
_LEARNER = "Learning time to assume for each batch (4ms), or for each STEPS steps (300ms/2048). Units: us, ms, s, m, h."
_FOR = f"Algorithm that will train: {', '.join(ALGORITHMS)}. vebench measures its time of learning."
_LIBRARY = f"Only backends that this library takes: {', '.join(LIBRARIES)}."
_PIN = "CPUs of cells: compact, scatter, none or 0-3,8; details: 'compact[smt=off,reserve=2,mem=bind]'."
_COPIES = "Copies of each backend at once: a number, or node (one on each memory node)."
_PROOF = "How many rows of each measured cell to compare with a plain loop's: auto, full or off."
_HOSTS = "Hosts that step one replica each: a,b or @FILE or ray; details: 'a,b[via=srun,count=1..8]'.  [default: here]"
_PASSES = "Passes over all cells, each in new processes."
_NO_BASE = f"Leave out the rows that speedups are relative to: {registry.REFERENCE} and {registry.YARDSTICK}."
_ALONE = "Measure cells one after another, not interleaved."
_MEMORY = "Leave out cells that need more memory than this, such as 8G."
_START = "How cells start: fork (from a warm process) or fresh (a new Python)."
_SUITE = "The fixed plan of submissions: atari-5, mujoco-5 or classic-3."
_COMPACT = Pinning()


@dataclass(frozen=True)
class RunSpec:
    """The complete request for a run. Times are in seconds.

    The record is flat, because each field is one option, one keyword of ``vebench.measure`` and one key of run files.
    The defaults are for run files without the field. ``defaults`` returns the defaults of commands.
    """

    envs: tuple[str, ...] = setting(_ENV_NAMES, WHAT, "ENV", _ENVS, "--env", "-e")
    # Empty: 1, 2, 4 and so on, up to the number of usable CPUs.
    workers: tuple[int, ...] = setting(grammar.counts(), WHAT, "COUNTS", _COUNTS, "--workers", "-w", default=())
    # Empty: the usual backends that can step the task.
    backends: tuple[BackendChoice, ...] = setting(_CHOICES, WHAT, "NAME", _BACKENDS, "--backend", "-b", default=())
    envs_per_worker: tuple[int, ...] = setting(grammar.counts(), WHAT, "COUNTS", _EACH, default=(1,))
    # The cells to measure, as texts of ``CellKey.place``. Empty: all cells of the plan.
    only: tuple[str, ...] = ()
    # The ids of tasks whose steps wait, as ``run`` and ``tune`` have timed. Then each worker is a process or thread,
    # even if there are more workers than CPUs.
    waiting: tuple[str, ...] = ()
    duration: float = setting(_TIME, ADVANCED, "TIME", "Length of a window.", default=1.0)
    windows: int = setting(grammar.whole(1, MAX_COUNT), ADVANCED, "N", "Windows of each cell in a pass.", default=6)
    warmup: float = setting(_WARMUP, ADVANCED, "TIME", "Shortest warm-up, before the first window.", default=1.0)
    # In a race, the number of passes per cell on average.
    passes: int = setting(grammar.whole(1, MAX_PASSES), HOW_LONG, "N", _PASSES, default=1)
    # Passes are added until each interval is within this share of its level, or the budget is spent.
    until: float | None = setting(grammar.share(), HOW_LONG, "SHARE", _UNTIL, default=None)
    # The longest time of a run. 0: no limit.
    budget: float = setting(grammar.seconds(or_none=True), HOW_LONG, "TIME", _BUDGET, default=0.0)
    base: bool = setting(_OFF, ADVANCED, "", _NO_BASE, "--no-base", default=False)
    # Cells take turns, window by window.
    interleave: bool = setting(_OFF, ADVANCED, "", _ALONE, "--no-interleave", default=False)
    # After ``PASSES_OF_ALL`` passes, only backends that may be the fastest are measured. See ``Session.measure``.
    race: bool = False
    seed: int = setting(_SEED, ADVANCED, "N", "Random seed.", default=0)
    pin: Pinning = setting(grammar.parsed(grammar.parse_pin), WHERE, "CPUS", _PIN, default=_COMPACT)
    replicas: int | Literal["node"] = setting(grammar.whole(1, 1 << 10, PER_NODE), ADVANCED, "N", _COPIES, default=1)
    hosts: Hosts | None = setting(grammar.parsed(grammar.parse_hosts), WHERE, "HOSTS", _HOSTS, default=None)
    memory: int | None = setting(grammar.size(), ADVANCED, "SIZE", _MEMORY, default=None)
    timeout: float = setting(_TIME, ADVANCED, "TIME", "Longest time for one cell or backend.", default=300.0)
    proof: str = setting(grammar.word("auto", "full", "off"), ADVANCED, "HOW", _PROOF, default="off")
    isolation: str = setting(grammar.word(FRESH, FORK), ADVANCED, "HOW", _START, default=FRESH)
    policy: PolicyChoice = setting(grammar.parsed(parse_policy), WHAT, "POLICY", _POLICY, default=TAPED)
    learner: LearnerStep | None = setting(_LEARNS, WHAT, "TIME[/STEPS]", _LEARNER, default=None)
    algorithm: str | None = setting(grammar.word(*ALGORITHMS), WHAT, "ALGORITHM", _FOR, "--for", default=None)
    library: str | None = setting(grammar.word(*LIBRARIES), WHAT, "LIBRARY", _LIBRARY, default=None)
    # The key in ``SUBMISSION_SUITES``, if this is the plan of a suite.
    suite: str = setting(grammar.Kind(), WHAT, "NAME", _SUITE, default="")

    def asks_for(self, backend: str, workers: int) -> bool:
        """Return whether the user requested a cell. Otherwise ``base`` has added it."""
        hosts = self.hosts.numbers if self.hosts else (1,)
        counts = {each * number for each in self.workers for number in hosts}
        return workers in counts and (not self.backends or backend in {one.label for one in self.backends})

    def conditions(self, without: Collection[str] = ()) -> dict[str, str]:
        """Return the fields that rates depend on, ``without`` some fields: field to value in words."""
        found = {}
        for name in self.__dataclass_fields__:
            if name not in _OF_CELLS and name not in without:
                value = getattr(self, name)
                found[name] = f"{value:g}" if isinstance(value, float) else getattr(value, "label", str(value))
        return found

    @property
    def takes_turns(self) -> bool:
        """Whether the cells of a task take turns. Cells with replicas do not."""
        return self.interleave and self.replicas == 1 and self.hosts is None

    @property
    def races(self) -> bool:
        """Whether only backends that may be the fastest get further passes."""
        return self.race and self.takes_turns

    @property
    def cell_seconds(self) -> float:
        """The time of one cell's shortest warm-up and its windows, without its start."""
        return self.warmup + self.windows * self.duration

    @property
    def longest_warmup(self) -> float:
        """The longest warm-up, if the rate does not settle. The extra time is at most half of the rest of --timeout."""
        most = max(5 * self.warmup, 2.5)
        return self.warmup + min(most - self.warmup, max(0.0, self.timeout - self.cell_seconds) / 2)


OPTIONS: Mapping[str, Option] = {
    one.name: Option(one.name, one.metadata["flags"] or (f"--{one.name.replace('_', '-')}",), *one.metadata["option"])
    for one in fields(RunSpec)
    if one.metadata
}
# These fields may differ between runs that are compared cell by cell. They choose cells, or only affect reports. Hosts
# are compared by the facts in the header.
_OF_TUNE = ("algorithm", "library")
_OF_CELLS = (
    *("envs", "workers", "backends", "envs_per_worker", "only", "base", "hosts", "memory", "learner", "suite"),
    "waiting",
    *_OF_TUNE,
)
OF_LENGTH = ("duration", "windows", "warmup", "passes", "until", "budget", "race", "timeout")

# The fields that each command has options for.
_NOT_OF_COMPARE = {*_OF_TUNE, "suite", "learner", "until", "budget", "base", "interleave", "hosts", "isolation"}
FIELDS: Mapping[str, tuple[str, ...]] = {
    "run": tuple(name for name in OPTIONS if name not in _OF_TUNE),
    "compare": tuple(name for name in OPTIONS if name not in _NOT_OF_COMPARE),
    # A bisection repeats comparisons as often as needed, so it has no option for passes.
    "bisect": tuple(name for name in OPTIONS if name not in {*_NOT_OF_COMPARE, "passes"}),
    "history": tuple(name for name in OPTIONS if name not in _NOT_OF_COMPARE),
    "tune": ("envs", "backends", *_OF_TUNE, "policy", "learner", "pin", "memory", "timeout", "seed"),
    "verify": ("envs", "backends", "timeout", "seed"),
}
# The passes, windows, duration, warmup and race that --effort sets. There are several passes of few windows, because
# processes differ more than windows do (docs/concepts/intervals.md). ``compare`` has short windows, so that a change
# of the machine's speed within seconds affects both sides.
EFFORTS: dict[str, Mapping[str, tuple[Any, ...]]] = {
    "run": {"low": (2, 3, 0.2, 0.1, False), "normal": (3, 12, 0.2, 0.1, True), "high": (6, 8, 0.5, 0.1, False)},
    "compare": {
        "low": (3, 20, 0.05, 0.2, False),
        "normal": (6, 40, 0.05, 0.2, False),
        "high": (9, 60, 0.05, 0.2, False),
    },
}
EFFORTS["bisect"] = EFFORTS["compare"]
# No race: a history needs the same cells of each commit.
EFFORTS["history"] = {"normal": (3, 12, 0.2, 0.1, False)}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "run": {"base": True, "interleave": True, "proof": "auto", "isolation": FORK, "budget": 600.0},
    "compare": {"proof": "auto"},
    "bisect": {"proof": "auto"},
    "history": {"base": True, "interleave": True, "isolation": FORK},
}


def defaults(command: str, level: str = "normal", given: Collection[str] = ()) -> dict[str, Any]:
    """Return a command's defaults with this ``--effort``, where they may differ from ``RunSpec``'s defaults.

    The effort sets none of the fields that are ``given``. With ``passes`` or ``until``, all cells get the same number
    of passes: there is no race. Raises UsageError for an unknown level of effort.
    """
    found = dict(_DEFAULTS.get(command, {}))
    if levels := EFFORTS.get(command):
        if level not in tuple(levels):
            raise UsageError(f"--effort {shown(str(level))}: must be one of {', '.join(levels)}")
        numbers = dict(zip(("passes", "windows", "duration", "warmup", "race"), levels[level], strict=True))
        numbers["race"] = numbers["race"] and not {"passes", "until"}.intersection(given)
        found |= {name: number for name, number in numbers.items() if name not in given}
    return found


def asked(command: str, given: Mapping[str, Any], level: str = "normal") -> RunSpec:
    """Return the spec of a command, from the ``given`` fields. Raises UsageError for an unknown level of effort."""
    values = {"envs": (), **defaults(command, level, given), **given}
    return RunSpec(**values)


def check_spec(spec: RunSpec) -> None:
    """Raise UsageError, with the option's name, if a value of ``spec`` is invalid."""
    if not spec.envs:
        raise UsageError("--env: name at least one environment, such as Pong, HalfCheetah or CartPole")
    for name, one in OPTIONS.items():
        value = getattr(spec, name)
        if value is not None and (value or name != "workers"):
            one.check(value)
    if spec.replicas != 1 and not spec.pin.pins:
        raise UsageError(f"--replicas {spec.replicas}: each replica needs its own CPUs; leave out --pin none")
    if spec.policy.cpus and not spec.pin.pins:
        raise UsageError(f"--policy {shown(spec.policy.label)}: its CPUs need pinned cells; leave out --pin none")
    if spec.hosts is not None:
        of_one = {
            f"--replicas {spec.replicas}": spec.replicas != 1,
            f"--policy {shown(spec.policy.label)}": bool(spec.policy.cpus),
            f"--pin {shown(spec.pin.cpus)}": spec.pin.cpus not in PIN_POLICIES,
        }
        if wrong := [named for named, given in of_one.items() if given]:
            raise UsageError(f"{wrong[0]}: is for one machine: leave it out with --hosts")
        if len(spec.hosts.counts) > 1 and len(spec.workers) != 1:
            raise UsageError("--hosts: with several counts of hosts, give one number of --workers, for each of them")
    if spec.timeout <= spec.cell_seconds:
        enough = math.ceil(spec.cell_seconds + 30)  # a cell starts within 30 seconds
        raise UsageError(
            f"--timeout {spec.timeout:g}s: warm-up and windows alone take {spec.cell_seconds:g}s; {enough}s is enough"
        )


def check_count(flag: str, value: int, least: int, most: int) -> None:
    """Raise UsageError, which names the option ``flag``, unless ``least <= value <= most``."""
    Option("", (flag,), "", "", "", grammar.whole(least, most)).check(value)


# All cells of a suite have the same number of passes, so that no cell is measured less because it seemed slow. There
# are many short passes, because passes differ more than windows do.
_PLAN: Mapping[str, Any] = MappingProxyType(
    {name: value for name, value in defaults("run").items() if name != "budget"}
    | {"timeout": 300.0, "passes": 6, "windows": 6, "duration": 0.2, "warmup": 0.1, "seed": 0, "race": False}
)


@dataclass(frozen=True)
class SubmissionSuite:
    """A plan that is fixed before anything is measured, so that runs of different machines can be compared.

    Only the backends and the number of CPUs differ between runs. A suite never changes: a new plan gets a new version.
    Submissions have the digest of the plan.
    """

    name: str
    version: int
    envs: tuple[str, ...]
    widest: float = 0.25  # the largest half width of a speedup's interval, as a share of the speedup

    @property
    def id(self) -> str:
        """The name with the version: ``atari-5/1``."""
        return f"{self.name}/{self.version}"

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the plan."""
        fixed = {"id": self.id, "envs": self.envs, "workers": "1..CPUs", "widest": self.widest, **_PLAN}
        return sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]

    def spec(self, cpus: int, backends: tuple[BackendChoice, ...] = ()) -> RunSpec:
        """Return the plan for a machine with ``cpus`` usable CPUs, by default with the usual backends."""
        return RunSpec(envs=self.envs, workers=grammar.doubled(cpus), backends=backends, suite=self.id, **_PLAN)


# Scores in these five games predict scores in all games: https://arxiv.org/abs/2210.02019
_GAMES = ("ALE/BattleZone-v5", "ALE/DoubleDunk-v5", "ALE/NameThisGame-v5", "ALE/Phoenix-v5", "ALE/Qbert-v5")
SUBMISSION_SUITES = {
    suite.id: suite
    for suite in (
        SubmissionSuite("atari-5", 1, _GAMES),
        SubmissionSuite("mujoco-5", 1, ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")),
        SubmissionSuite("classic-3", 1, ("Acrobot-v1", "CartPole-v1", "Pendulum-v1")),
    )
}


def suite_named(name: str) -> SubmissionSuite:
    """Return the newest version of the suite ``name``. Raises UsageError if there is none."""
    newest = {suite.name: suite for suite in SUBMISSION_SUITES.values()}
    if name not in newest:
        near = did_you_mean(name, newest)
        raise UsageError(f"--suite {shown(name)}: no such suite{near}; there are {', '.join(newest)}")
    return newest[name]
