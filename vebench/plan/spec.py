"""What the user asked for, as immutable values. Only the command line handles its text, and parses it once.

``OPTIONS`` declares how the command line names the fields. The bounds are in ``check_spec``, because a spec is also
read from run files.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from vebench.backends import bracketed
from vebench.backends.registry import BY_NAME, find
from vebench.child.policy import TAPED, PolicyChoice, parse_policy
from vebench.errors import UsageError, shown
from vebench.machine.pinning import MEMORY_POLICIES, PIN_POLICIES, SMT_POLICIES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from vebench.backends.entry import BackendEntry

# Groups of options in the help, in its order.
GROUPS = ("What to measure", "How long", "Where", "Verdict", "Output and files", "Advanced")
WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT, ADVANCED = GROUPS
MAX_WORKERS = 1 << 16
MAX_ENVS_PER_WORKER = 1 << 16
MAX_WINDOWS = 1 << 16
MAX_PASSES = 1 << 10
MAX_REPLICAS = 1 << 10
_VIAS = ("ssh", "srun", "ray")
# Nothing that ssh would take for an option, and nothing that a shell would.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_@.:%-]{1,255}", re.ASCII)
MOST_MEMORY = 1 << 60
PER_NODE: Literal["node"] = "node"
MOST_LEARNER_STEPS = 1 << 40
_PROOFS = ("auto", "full", "off")
ISOLATIONS = FRESH, FORK = "fresh", "fork"
# Environment i gets seed + i, and EnvPool takes seeds of 32 bits: this leaves room for every i.
MAX_SEED = 2_000_000_000
_MIN_SECONDS = 1e-9  # the resolution of a clock that counts nanoseconds
_MAX_SECONDS = 31 * 86400.0  # a month: longer waits overflow in system calls
# A warm-up whose rate has not settled may take at most this many times --warmup, or so many seconds if that is more.
_MOST_WARMUPS, _MOST_WARMUP_S = 5, 2.5
_STARTUP_ALLOWANCE = 30.0  # seconds for the start of a cell in the timeout that an error suggests
# What --effort stands for, by command: values of these fields. Several processes of few windows, since processes differ
# more than windows do: docs/method.md has how this was chosen. ``compare`` has short windows: a machine whose speed
# changes within seconds then changes it for both sides.
_BY_EFFORT = ("passes", "windows", "duration", "warmup", "race")
EFFORTS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "run": {"low": (2, 3, 0.2, 0.1, False), "normal": (3, 12, 0.2, 0.1, True), "high": (6, 8, 0.5, 0.1, False)},
    "compare": {
        "low": (3, 20, 0.05, 0.2, False),
        "normal": (6, 40, 0.05, 0.2, False),
        "high": (9, 60, 0.05, 0.2, False),
    },
}
# In a race, all cells have so many passes.
PASSES_OF_ALL = 2
TOLERANCE = 0.1  # how much slower a backend may be, in every gate
UNTIL_BUDGET = 1e-6  # no interval gets so narrow: passes are added until the budget is spent


def effort(command: str, level: str = "normal", given: Collection[str] = ()) -> dict[str, Any]:
    """Return what ``--effort`` stands for in ``vebench run`` or ``compare``, by field, but for what is ``given``.

    There is no race where ``passes`` or ``until`` is given, which all cells have to reach. Raises UsageError.
    """
    levels = EFFORTS[command]
    if level not in tuple(levels):
        raise UsageError(f"--effort {shown(str(level))}: must be one of {', '.join(levels)}")
    numbers = dict(zip(_BY_EFFORT, levels[level], strict=True))
    numbers["race"] &= not {"passes", "until"}.intersection(given)
    return {name: number for name, number in numbers.items() if name not in given}


# What ``vebench run`` and ``vebench.measure`` do unless something else is asked for.
PLAN_OF_RUN: Mapping[str, Any] = MappingProxyType(
    {"base": True, "interleave": True, "proof": "auto", "isolation": FORK, "timeout": 300.0, **effort("run")}
)


@dataclass(frozen=True)
class BackendChoice:
    """A backend, by name or (a third party's) by ``module:Class``, its options, and the interpreter that was named."""

    name: str
    options: dict[str, bool | int | float | str] = field(default_factory=dict)
    python: str = ""

    @property
    def label(self) -> str:
        """The choice as a user writes it: ``envpool-async@py312[ratio=2]``."""
        return bracketed.written(f"{self.name}@{self.python}" if self.python else self.name, self.options)

    @property
    def entry(self) -> BackendEntry:
        """What is known of the backend."""
        return find(self.name)

    @property
    def is_ours(self) -> bool:
        """Whether it is in the registry, and not a third party's."""
        return self.name in BY_NAME


@dataclass(frozen=True)
class LearnerStep:
    """A stated time of learning: ``seconds`` for every ``steps`` steps, None for every batch."""

    seconds: float
    steps: int | None = None


@dataclass(frozen=True)
class Pinning:
    """Which CPUs cells get: ``compact``, ``scatter``, ``none``, or a list such as ``0-3,8``; and which memory.

    ``smt``: when a core's second thread is used: ``last`` (after all cores), ``close`` (at once) or ``off``.
    ``reserve``: the number of CPUs without a worker, whole cores as far as possible.
    """

    cpus: str = "compact"
    smt: str = "last"
    reserve: int = 0
    memory: str = "local"

    @property
    def pins(self) -> bool:
        """Whether cells are held to CPUs at all."""
        return self.cpus != "none"

    @property
    def label(self) -> str:
        """The pinning as a user writes it: ``compact[smt=off]``."""
        details: dict[str, int | str] = {"smt": self.smt, "reserve": self.reserve, "mem": self.memory}
        usual = {"smt": "last", "reserve": 0, "mem": "local"}
        return bracketed.written(self.cpus, {key: value for key, value in details.items() if value != usual[key]})


@dataclass(frozen=True)
class Hosts:
    """The hosts on which a cell has a replica each.

    ``names`` are empty for the nodes of a Ray cluster that is yet to be asked for them. ``counts``: on how many of
    them, the first ones, there are cells; empty for all. Ray's cluster is at ``address``. ``python`` is the one on each
    host, by default this one's path, or Ray's. With ``unlike``, hosts and their packages may differ.
    """

    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    via: str = "ssh"
    address: str = "auto"
    python: str = ""
    unlike: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """On how many hosts there are to be cells."""
        return self.counts or (len(self.names),)

    @property
    def label(self) -> str:
        """The hosts as a user writes them, without details: ``a,b,c``."""
        return ",".join(self.names) or f"ray[address={self.address}]"


_COMPACT = Pinning()
# Where two runs are compared: fields that choose cells, which are compared one by one, or state times, and fields that
# say how long all goes on. A difference in any other is one in what is measured, or how; of hosts, the header knows it.
_OF_CELLS = ("envs", "workers", "backends", "envs_per_worker", "only", "base", "hosts", "memory", "learner", "suite")
OF_LENGTH = ("duration", "windows", "warmup", "passes", "until", "budget", "race", "timeout")


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides what a run measures. Times are in seconds. Empty ``backends`` means all that can run.

    The defaults are those of a run file that lacks the field. ``only`` names the cells of the plan that are measured,
    as ``CellKey.place`` does; empty for all. With ``until``, further passes follow after ``passes``, until each
    interval is within that share of its level or all passes have taken ``budget`` seconds. With ``base``, the cells
    that speedups are relative to are added. With ``interleave``, cells of a pass take turns, window by window. In a
    ``race``, cells take turns, and ``passes`` is how many passes they have on average: see ``Session.measure``.
    ``memory`` is in bytes: cells that need more are left out. ``isolation``: whether cells have fresh interpreters, or
    are forked from one that has imported what they need. ``suite`` is that of ``plan.suites`` whose plan this is.
    """

    envs: tuple[str, ...]
    workers: tuple[int, ...] = (1, 2, 4)
    backends: tuple[BackendChoice, ...] = ()
    envs_per_worker: tuple[int, ...] = (1,)
    only: tuple[str, ...] = ()
    duration: float = 1.0
    windows: int = 6
    warmup: float = 1.0
    passes: int = 1
    until: float | None = None
    budget: float = 600.0
    base: bool = False
    interleave: bool = False
    race: bool = False
    seed: int = 0
    pin: Pinning = _COMPACT
    replicas: int | Literal["node"] = 1
    hosts: Hosts | None = None
    memory: int | None = None
    timeout: float = 300.0
    proof: str = "off"
    isolation: str = FRESH
    policy: PolicyChoice = TAPED
    learner: LearnerStep | None = None
    suite: str = ""

    def asks_for(self, backend: str, workers: int) -> bool:
        """Whether the backend with this label is to have this many workers, apart from the cells of ``base``."""
        counts = {each * hosts for each in self.workers for hosts in (self.hosts.numbers if self.hosts else (1,))}
        return workers in counts and (not self.backends or backend in {one.label for one in self.backends})

    def conditions(self, besides: Collection[str] = ()) -> dict[str, str]:
        """Return the conditions on which rates depend, in words, by field, except the fields ``besides``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in (*_OF_CELLS, *besides)}
        return {
            name: f"{value:g}" if isinstance(value, float) else getattr(value, "label", str(value))
            for name, value in values.items()
        }

    @property
    def takes_turns(self) -> bool:
        """Whether the cells of a task take turns. Those with replicas do not."""
        return self.interleave and self.replicas == 1 and self.hosts is None

    @property
    def races(self) -> bool:
        """Whether further passes are those of the fastest backends alone."""
        return self.race and self.takes_turns

    @property
    def cell_seconds(self) -> float:
        """How long one cell warms up and measures, without its start."""
        return self.warmup + self.windows * self.duration

    @property
    def longest_warmup(self) -> float:
        """The longest warm-up if the rate does not settle. The extra time is at most half of what --timeout leaves."""
        most = max(_MOST_WARMUPS * self.warmup, _MOST_WARMUP_S)
        return self.warmup + min(most - self.warmup, max(0.0, self.timeout - self.cell_seconds) / 2)


_BACKENDS = "NAME[KEY=VALUE,...], NAME@PYTHON, MODULE:CLASS, all-peers.  [default: the usual ones]"
_COUNTS = "8 or 1..256 (doubles), 1..16:+5 (adds), 1..81:*3 (multiplies).  [default: 1..4]"
_POLICY = "mlp:64x64, nature-cnn[device=cuda], sleep:1ms, MODULE:FUNCTION.  [default: tape]"
_LEARNER = "Assumed learner time for each batch (4ms), or for each STEPS steps (300ms/2048)."
_REPLICAS = "Copies of the backend: N, or node (one on each node)."
_PROOF = "How much of each cell's rows to compare with a plain loop's: auto, full or off."
_ISOLATION = "How cells start: fork or fresh."
# Options of the command line by the fields that they set, in the order of the help: their group there, what stands for
# the value, the meaning, and their names. Fields without one are set by --set, or by no user.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "envs": (WHAT, "ENV", "Pong, 'CartPole[max_episode_steps=50]', MODULE:ID, MODULE:CALLABLE ...", "--env", "-e"),
    "suite": (WHAT, "NAME", "The plan of atari-5, mujoco-5 or classic-3.", "--suite"),
    "backends": (WHAT, "NAME", _BACKENDS, "--backend", "-b"),
    "workers": (WHAT, "COUNTS", _COUNTS, "--workers", "-w"),
    "envs_per_worker": (WHAT, "COUNTS", "Environments of each worker.  [default: 1]", "--envs-per-worker"),
    "policy": (WHAT, "POLICY", _POLICY, "--policy"),
    "learner": (WHAT, "TIME[/STEPS]", _LEARNER, "--learner"),
    "duration": (ADVANCED, "TIME", "Length of one window.", "--duration"),
    "windows": (ADVANCED, "N", "Windows of a cell in each pass.", "--windows"),
    "warmup": (ADVANCED, "TIME", "Least time before the first window.", "--warmup"),
    "passes": (HOW_LONG, "N", "Passes, each of all cells.", "--passes"),
    "until": (HOW_LONG, "SHARE", "Add passes until intervals are this narrow (2%).", "--until"),
    "budget": (HOW_LONG, "TIME", "Add passes until this long after the start (--until: 10m).", "--budget"),
    "timeout": (ADVANCED, "TIME", "Longest time for one cell or backend.", "--timeout"),
    "seed": (ADVANCED, "N", "Seed of all that is drawn at random.", "--seed"),
    "pin": (WHERE, "CPUS", "compact, scatter, none or 0-3,8, also compact[smt=off,reserve=2,mem=bind].", "--pin"),
    "replicas": (ADVANCED, "N", _REPLICAS, "--replicas"),
    "hosts": (WHERE, "HOSTS", "A replica on each of a,b or of @FILE or ray, also a,b[via=srun,count=1..8].", "--hosts"),
    "proof": (ADVANCED, "HOW", _PROOF, "--proof"),
    "isolation": (ADVANCED, "HOW", _ISOLATION, "--isolation"),
}
# Fields that ``vebench run`` sets by --set, and those that ``vebench compare`` does.
SETTINGS = ("base", "interleave", "memory", "warmup")
COMPARE_SETTINGS = (
    *("duration", "envs_per_worker", "memory", "pin", "policy", "proof"),
    *("replicas", "windows", "seed", "timeout", "warmup"),
)
TUNE_SETTINGS = ("memory", "pin", "policy", "seed", "timeout")


def as_settings(text: str, settings: Collection[str]) -> str:
    """Return ``text`` with the options of these fields written as settings: ``--set windows=4`` for ``--windows 4``."""

    def written(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        if name not in settings or name not in OPTIONS:
            return found[0]
        value = found[2] or f" {OPTIONS[name][1]}"
        return f"--set {name}{value.replace(' ', '=')}"

    return re.sub(r"--([a-z-]+)(:| (?:\d\S*|none\b|\S+(?=: )))?", written, text)


def check_spec(spec: RunSpec) -> None:
    """Raise UsageError, with the option's name, if a value of ``spec`` is invalid."""
    if not spec.envs:
        raise UsageError("--env: name at least one environment, such as Pong, HalfCheetah or CartPole")
    _check_counts("--workers", spec.workers, MAX_WORKERS)
    _check_counts("--envs-per-worker", spec.envs_per_worker, MAX_ENVS_PER_WORKER)
    check_count("--windows", spec.windows, 1, MAX_WINDOWS)
    check_count("--passes", spec.passes, 1, MAX_PASSES)
    check_count("--seed", spec.seed, 0, MAX_SEED)
    check_pinning(spec.pin)
    if spec.memory is not None and not 1 <= spec.memory <= MOST_MEMORY:
        raise UsageError(f"memory {spec.memory}: must be between 1 byte and {MOST_MEMORY} bytes")
    _check_word("--proof", spec.proof, _PROOFS)
    _check_word("--isolation", spec.isolation, ISOLATIONS)
    _check_policy(spec)
    count = spec.replicas
    if count != PER_NODE and not 1 <= count <= MAX_REPLICAS:
        raise UsageError(f"--replicas {count}: must be a whole number from 1 to {MAX_REPLICAS}, or {PER_NODE}")
    if count != 1 and not spec.pin.pins:
        raise UsageError(f"--replicas {count}: each replica needs CPUs of its own, but --pin none gives it none")
    if spec.hosts is not None:
        _check_hosts(spec, spec.hosts)
    check_seconds("--duration", spec.duration)
    check_seconds("--timeout", spec.timeout)
    check_seconds("--budget", spec.budget)
    if spec.until is not None and not 0 < spec.until < 1:
        raise UsageError(f"--until {spec.until:g}: must be between 0% and 100%")
    if spec.warmup != 0:
        check_seconds("--warmup", spec.warmup, "0 or ")
    if spec.timeout <= spec.cell_seconds:
        enough = math.ceil(spec.cell_seconds + _STARTUP_ALLOWANCE)
        raise UsageError(
            f"--timeout {spec.timeout:g}s: warm-up and windows alone take {spec.cell_seconds:g}s; {enough}s is enough"
        )


def _check_word(option: str, word: str, words: Collection[str]) -> None:
    if word not in words:
        raise UsageError(f"{option} {shown(word)}: must be one of {', '.join(words)}")


def check_pinning(pin: Pinning) -> None:
    """Raise UsageError if there is no such pinning. Whether the machine has these CPUs is not looked at."""
    option = f"--pin {shown(pin.label)}"
    if pin.smt not in SMT_POLICIES:
        raise UsageError(f"{option}: smt must be one of {', '.join(SMT_POLICIES)}")
    check_count("--pin: reserve", pin.reserve, 0, MAX_WORKERS)
    if pin.memory not in MEMORY_POLICIES:
        raise UsageError(f"{option}: mem must be one of {', '.join(MEMORY_POLICIES)}")
    if pin.memory != "local" and not pin.pins:
        raise UsageError(f"{option}: without CPUs of its own, a cell has no memory nodes of its own")


def _check_policy(spec: RunSpec) -> None:
    policy = spec.policy
    try:
        wrong = parse_policy(policy.label) != policy
    except ValueError as error:
        raise UsageError(f"--policy {shown(policy.label)}: {error}") from None
    if wrong:  # it comes from a file
        raise UsageError(f"--policy {shown(policy.label)}: not as vebench writes it")
    if policy.cpus and not spec.pin.pins:
        raise UsageError(f"--policy {shown(policy.label)}: with --pin none, nothing is held to CPUs")
    if spec.learner is not None:
        check_seconds("--learner", spec.learner.seconds)
        if spec.learner.steps is not None:
            check_count("--learner", spec.learner.steps, 1, MOST_LEARNER_STEPS)


def _check_hosts(spec: RunSpec, hosts: Hosts) -> None:
    of_one = {
        f"--replicas {spec.replicas}": spec.replicas != 1,
        f"--policy {shown(spec.policy.label)}": bool(spec.policy.cpus),
        f"--pin {shown(spec.pin.cpus)}": spec.pin.cpus not in PIN_POLICIES,
    }
    if wrong := [option for option, given in of_one.items() if given]:
        raise UsageError(f"{wrong[0]}: is for one machine: leave it out with --hosts")
    if hosts.via not in _VIAS:
        raise UsageError(f"--hosts: via={shown(hosts.via)}: must be one of {', '.join(_VIAS)}")
    for number, name in enumerate(hosts.names):
        if not _HOST_NAME.fullmatch(name):
            raise UsageError(f"--hosts {shown(name)}: is no name of a host")
        if name in hosts.names[:number]:
            raise UsageError(f"--hosts {shown(name)}: is named twice, but a host has one replica of a cell")
    if hosts.counts:
        _check_counts("--hosts: count", hosts.counts, len(hosts.names) or MAX_WORKERS)
        if len(hosts.counts) > 1 and len(spec.workers) > 1:
            raise UsageError("--hosts: with several counts of hosts, give one number of --workers, for each of them")


def _check_counts(option: str, counts: tuple[int, ...], most: int) -> None:
    if not counts:
        raise UsageError(f"{option}: give at least one number")
    for count in counts:
        check_count(option, count, 1, most)
    if list(counts) != sorted(set(counts)):
        raise UsageError(f"{option}: numbers must ascend, each once")


def check_count(option: str, value: int, least: int, most: int) -> None:
    """Raise UsageError, with the option's name, unless ``least <= value <= most``."""
    if not least <= value <= most:
        raise UsageError(f"{option} {value}: must be a whole number from {least} to {most}")


def check_seconds(option: str, value: float, otherwise: str = "") -> None:
    """Raise UsageError, with the option's name, unless ``value`` is a possible time; ``otherwise`` is also allowed."""
    # Any comparison with NaN is false.
    if not _MIN_SECONDS <= value <= _MAX_SECONDS:
        raise UsageError(f"{option} {value:g}: must be {otherwise}above 0 seconds, at most {_MAX_SECONDS:.0f}")
