"""What the user asked for, as immutable values. Only the command line handles its text, and parses it once.

An option of ``vebench run`` that decides what is measured is declared once, as a field of ``RunSpec``: its default, its
help text and its parser. ``vebench.options`` turns the fields into command-line options. The bounds are in ``check``,
because a spec is also read from run files. A field that the measuring child uses is also a field of
``vebench.child.request.Settings``.
"""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from vebench.backends import bracketed
from vebench.backends.registry import find
from vebench.child.policies.named import DEVICE, MOST_THREADS, PRECISIONS, TAPE, PolicyName, is_network, parse_policy
from vebench.errors import UsageError, shown
from vebench.machine import policies

if TYPE_CHECKING:
    from vebench.backends.entry import BackendEntry

MAX_WORKERS = 1 << 16
MAX_ENVS_PER_WORKER = 1 << 16
MAX_ROUNDS = 1 << 16
MAX_REPEATS = 1 << 10
MAX_REPLICAS = 1 << 10
VIAS = ("ssh", "srun", "ray")
# Nothing that ssh would take for an option, and nothing that a shell would.
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_@.:\[\]%-]{1,255}", re.ASCII)
MOST_MEMORY = 1 << 60
PER_NODE = "node"
MOST_LEARNER_STEPS = 1 << 40
PROOFS = ("auto", "full", "off")
# Environment i gets seed + i, and EnvPool takes seeds of 32 bits: this leaves room for every i.
MAX_SEED = 2_000_000_000
MIN_SECONDS = 1e-9  # the resolution of a clock that counts nanoseconds
# A month: longer waits overflow in system calls.
MAX_SECONDS = 31 * 86400.0
MOST_WARMUPS = 5  # a warm-up whose rate has not settled may take at most this many times --warmup
# Seconds for the start of a cell in the timeout that an error suggests.
STARTUP_ALLOWANCE = 30.0


@dataclass(frozen=True)
class BackendChoice:
    """A backend, by name or (a third party's) by ``module:Class``, and the options given to it.

    ``python`` is the interpreter that the user named for it, by path or by name; empty if he named none.
    """

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


@dataclass(frozen=True)
class LearnerStep:
    """A stated time of learning: ``seconds`` for every ``steps`` steps, None for every batch."""

    seconds: float
    steps: int | None = None


class Option(NamedTuple):
    """How a field is set on the command line.

    ``names`` are the names of the option, by default the field's name. ``parse`` names the function of
    ``vebench.plan.grammar`` that turns the text into the value, or all texts if the option may be ``repeated``; by
    default the text is the value. A field without a default is parsed from the texts ``otherwise`` if the option is
    not given.
    """

    metavar: str
    meaning: str
    names: tuple[str, ...] = ()
    parse: str = ""
    repeated: bool = False
    otherwise: tuple[str, ...] = ()


def option(default: object, metavar: str, meaning: str, *names: str, **how: Any) -> Any:  # noqa: ANN401 - as ``field`` has it
    """Declare a field that an option sets, with its default. ``how`` are the remaining fields of ``Option``."""
    return field(default=default, metadata={"option": Option(metavar, meaning, names, **how)})


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides what a run measures. Times are in seconds. Empty ``backends`` means all that can run.

    The defaults are those of a run file that lacks the field; ``vebench.cli`` has the plans that commands make by
    default.

    With ``until``, further passes follow after ``repeats``, until each interval is within that share of its level or
    the further passes have taken ``budget`` seconds. With ``base``, the cells that speedups are relative to are added
    where they were not asked for. With ``interleave``, cells of a pass take turns, window by window; cells with
    replicas do not, since these run in step.
    """

    envs: tuple[str, ...] = option(
        MISSING,
        "ENV",
        "Pong, 'CartPole[max_episode_steps=50]', MODULE:CALLABLE, MODULE:ID ... Comma or repeat.",
        *("--env", "-e"),
        parse="parse_envs",
        repeated=True,
    )
    workers: tuple[int, ...] = option(
        MISSING,
        "COUNTS",
        "8, or 1..256 (doubles), 1..16:+5 (adds), 1..81:*3 (multiplies). Comma or repeat. Default: 1..4.",
        *("--workers", "-w"),
        parse="parse_workers",
        repeated=True,
        otherwise=("1..4",),
    )
    backends: tuple[BackendChoice, ...] = option(
        (),
        "NAME",
        "A name from vebench list, NAME[KEY=VALUE,...] or MODULE:CLASS; NAME@PYTHON runs in that Python; all-peers: "
        "other projects', too. Comma or repeat. Default: the usual ones.",
        *("--backend", "-b"),
        parse="parse_backends",
        repeated=True,
    )
    envs_per_worker: tuple[int, ...] = option(
        (1,),
        "COUNTS",
        "Environments stepped at a time for each worker: 4, or 1,4,16 or 1..16, as --workers. Default: 1.",
        parse="parse_envs_per_worker",
        repeated=True,
    )
    only: tuple[str, ...] = option(
        (),
        "CELL",
        "Only these cells of the plan: BACKEND:2x8 is that of 2 workers with 8 environments each. Comma or repeat.",
        parse="parse_cells",
        repeated=True,
    )
    duration: float = option(1.0, "TIME", "Length of one window.")
    rounds: int = option(6, "N", "Windows of each cell in each pass.")
    warmup: float = option(1.0, "TIME", "Least time that a cell runs before its first window.")
    repeats: int = option(1, "N", "Passes over all cells, each in fresh processes and in its own order.")
    until: float | None = option(
        None, "SHARE", "Add passes until each interval is within this share, such as 2%.", parse="parse_share"
    )
    budget: float = option(600.0, "TIME", "Longest time that --until adds.")
    base: bool = option(
        False, "", "Also measure the plain loop with one worker, so that there are speedups.", "--base/--no-base"
    )
    interleave: bool = option(
        False,
        "",
        "Whether the cells of a task take turns, window by window: steadier speedups on a noisy machine.",
        "--interleave/--no-interleave",
    )
    seed: int = option(0, "N", "Seed of environments and actions, and of the order in which a run measures its cells.")
    pin: str = option("compact", "CPUS", "CPUs of a cell: compact, scatter, none, or a list such as 0-3,8.")
    membind: str = option("local", "HOW", "Memory of a cell: local, bind (to its CPUs' nodes) or preferred.")
    replicas: str = option(
        "1", "N", "Copies of the backend in a cell, each with its own process and CPUs: a number, or node."
    )
    hosts: tuple[str, ...] = option(
        (),
        "HOSTS",
        "Run a replica of each cell on each of these hosts, a,b,c; or on so many of --hosts-file, such as 1..4.",
        parse="parse_hosts",
        repeated=True,
    )
    hosts_file: tuple[str, ...] = option(
        (), "FILE", "The hosts of --hosts, one on each line.", parse="parse_hosts_file"
    )
    via: str = option("ssh", "WAY", "How hosts are reached: ssh, srun inside an allocation, or ray.")
    ray: str = option("", "ADDRESS", "Run a replica of each cell on each node of this Ray cluster: HOST:PORT, or auto.")
    host_python: str = option("", "PYTHON", "The Python on each host. Default: this one's path, or Ray's.")
    deliver: bool = option(
        False,
        "",
        "Send every batch through Ray's object store to one consumer, where vebench runs.",
        "--deliver/--keep",
    )
    unlike_hosts: bool = option(
        False, "", "Measure although hosts or their packages differ.", "--unlike-hosts/--like-hosts"
    )
    smt: str = option(
        "last", "WHEN", "When to use a core's second thread: last (after all cores), off, or close (at once)."
    )
    reserve_cpus: int = option(0, "N", "CPUs that no worker gets, left for a learner: whole cores as far as possible.")
    memory: int | None = option(
        None, "SIZE", "Most memory of a cell, such as 8G: what needs more is left out.", parse="parse_memory"
    )
    timeout: float = option(300.0, "TIME", "Longest time for a cell, or for comparing a backend, before it is ended.")
    proof: str = option(
        "off",
        "HOW",
        "Whether what each cell returned is compared with the plain loop's rows: auto (takes about as long again), "
        "full (to the last window) or off.",
    )

    policy: str = option(
        TAPE,
        "POLICY",
        "What acts: tape (actions drawn beforehand), mlp:64x64, nature-cnn, transformer:2x128, MODULE:FUNCTION "
        "or sleep:0.5ms.",
    )
    device: str = option("cpu", "DEVICE", "Where --policy computes: cpu, cuda or cuda:N.")
    torch_threads: int = option(1, "N", "Threads of torch with which --policy computes on CPUs.")
    precision: str = option("fp32", "TYPE", "Numbers of --policy: fp32 or bf16.")
    compile: bool = option(False, "", "Whether torch compiles --policy.", "--compile/--no-compile")
    policy_cpus: str = option(
        "", "CPUS", "CPUs for --policy, such as 0-1, which no worker gets. Default: those of the cell."
    )
    learner: LearnerStep | None = option(  # noqa: RUF009 - as the others: it declares a field
        None,
        "TIME[/STEPS]",
        "What learning takes for each batch, or each STEPS steps, such as 4ms or 300ms/2048: adds what a faster "
        "backend would save.",
        parse="parse_learner",
    )

    @property
    def acting(self) -> PolicyName:
        """What the name of the policy means. Raises ValueError if it means nothing."""
        return parse_policy(self.policy)

    @property
    def acts(self) -> str:
        """What acts and how it computes, in words; empty for a tape."""
        if self.policy == TAPE:
            return ""
        parts = [self.policy]
        if is_network(self.policy):
            threads = f"{self.torch_threads} thread{'s' * (self.torch_threads != 1)} of torch"
            parts += [f"on {self.device}", *([threads] if self.device == "cpu" else []), self.precision]
            parts += ["compiled"] * self.compile
        if self.policy_cpus:
            parts.append(f"on CPU {self.policy_cpus}")
        return ", ".join(parts)

    def asks_for(self, backend: str, workers: int) -> bool:
        """Whether the backend with this label is to have this many workers, apart from the cells of ``base``."""
        counts = {each * hosts for each in self.workers for hosts in self.host_counts or (1,)}
        return workers in counts and (not self.backends or backend in {one.label for one in self.backends})

    @property
    def takes_turns(self) -> bool:
        """Whether the cells of a task take turns. Those with replicas do not."""
        return self.interleave and self.replicas == "1" and not self.on_hosts

    @property
    def way(self) -> str:
        """How hosts are reached: the name of a way."""
        return "ray" if self.ray else self.via

    @property
    def ray_address(self) -> str:
        """Where the Ray cluster is that hosts are reached by."""
        return self.ray or "auto"

    @property
    def on_hosts(self) -> bool:
        """Whether replicas run on hosts that are reached, by names or as Ray has them."""
        return bool(self.host_names) or self.way == "ray"

    @property
    def host_names(self) -> tuple[str, ...]:
        """The hosts that replicas run on; none if they run on this machine."""
        return self.hosts_file or self.hosts

    @property
    def host_counts(self) -> tuple[int, ...]:
        """On how many of the hosts, the first ones, there are to be cells; none if they run on this machine."""
        if self.hosts and self.hosts_file:
            return tuple(int(count) for count in self.hosts)
        return (len(self.host_names),) if self.host_names else ()

    @property
    def cell_seconds(self) -> float:
        """How long one cell warms up and measures, without its start."""
        return self.warmup + self.rounds * self.duration

    @property
    def longest_warmup(self) -> float:
        """The longest warm-up if the rate does not settle. The extra time is at most half of what --timeout leaves."""
        return self.warmup + min((MOST_WARMUPS - 1) * self.warmup, max(0.0, self.timeout - self.cell_seconds) / 2)


def check(spec: RunSpec) -> None:
    """Raise UsageError, with the option's name, if a value of ``spec`` is invalid."""
    if not spec.envs:
        raise UsageError("--env: name at least one environment, such as Pong, HalfCheetah or CartPole")
    _check_counts("--workers", spec.workers, MAX_WORKERS)
    _check_counts("--envs-per-worker", spec.envs_per_worker, MAX_ENVS_PER_WORKER)
    check_count("--rounds", spec.rounds, 1, MAX_ROUNDS)
    check_count("--repeats", spec.repeats, 1, MAX_REPEATS)
    check_count("--seed", spec.seed, 0, MAX_SEED)
    check_smt(spec.smt)
    check_count("--reserve-cpus", spec.reserve_cpus, 0, MAX_WORKERS)
    if spec.memory is not None and not 1 <= spec.memory <= MOST_MEMORY:
        raise UsageError(f"--memory {spec.memory}: must be between 1 byte and {MOST_MEMORY} bytes")
    if spec.proof not in PROOFS:
        raise UsageError(f"--proof {shown(spec.proof)}: must be one of {', '.join(PROOFS)}")
    _check_policy(spec)
    _check_membind(spec)
    _check_replicas(spec)
    _check_hosts(spec)
    check_seconds("--duration", spec.duration)
    check_seconds("--timeout", spec.timeout)
    check_seconds("--budget", spec.budget)
    if spec.until is not None and not 0 < spec.until < 1:
        raise UsageError(f"--until {spec.until:g}: must be between 0% and 100%")
    if spec.warmup != 0:
        check_seconds("--warmup", spec.warmup, "0 or ")
    if spec.timeout <= spec.cell_seconds:
        enough = math.ceil(spec.cell_seconds + STARTUP_ALLOWANCE)
        raise UsageError(
            f"--timeout {spec.timeout:g}: warm-up and windows alone take {spec.cell_seconds:g} s; {enough} is enough"
        )


def check_smt(policy: str) -> None:
    """Raise UsageError unless ``policy`` is a policy for the second threads of cores."""
    if policy not in policies.SMT:
        raise UsageError(f"--smt {shown(policy)}: must be one of {', '.join(policies.SMT)}")


def _check_policy(spec: RunSpec) -> None:
    try:
        parse_policy(spec.policy)
    except ValueError as error:
        raise UsageError(f"--policy {shown(spec.policy)}: {error}") from None
    if not DEVICE.fullmatch(spec.device):
        raise UsageError(f"--device {shown(spec.device)}: must be cpu, cuda or cuda:N")
    check_count("--torch-threads", spec.torch_threads, 1, MOST_THREADS)
    if spec.precision not in PRECISIONS:
        raise UsageError(f"--precision {shown(spec.precision)}: must be one of {', '.join(PRECISIONS)}")
    if spec.policy_cpus and spec.pin == "none":
        raise UsageError(f"--policy-cpus {shown(spec.policy_cpus)}: with --pin none, nothing is held to CPUs")
    changed = [
        name
        for name, value, default in (
            ("--device", spec.device, "cpu"),
            ("--torch-threads", spec.torch_threads, 1),
            ("--precision", spec.precision, "fp32"),
            ("--compile", spec.compile, False),
        )
        if value != default
    ]
    if changed and not is_network(spec.policy):
        raise UsageError(f"{changed[0]}: is for policies that are networks, such as --policy mlp:64x64")
    if spec.policy_cpus and spec.policy == TAPE:
        raise UsageError("--policy-cpus: needs a --policy that computes, such as mlp:64x64")
    if spec.learner is not None:
        check_seconds("--learner", spec.learner.seconds)
        if spec.learner.steps is not None:
            check_count("--learner", spec.learner.steps, 1, MOST_LEARNER_STEPS)


def _check_membind(spec: RunSpec) -> None:
    if spec.membind not in policies.MEMORY:
        raise UsageError(f"--membind {shown(spec.membind)}: must be one of {', '.join(policies.MEMORY)}")
    if spec.membind != "local" and spec.pin == "none":
        raise UsageError(f"--membind {spec.membind}: without CPUs of its own, a cell has no memory nodes of its own")


def _check_replicas(spec: RunSpec) -> None:
    count = spec.replicas
    number = int(count) if count.isascii() and count.isdecimal() and len(count) <= len(str(MAX_REPLICAS)) else 0
    if count != PER_NODE and not 1 <= number <= MAX_REPLICAS:
        raise UsageError(f"--replicas {shown(count)}: must be a whole number from 1 to {MAX_REPLICAS}, or {PER_NODE}")
    if count != "1" and spec.pin == "none":
        raise UsageError(f"--replicas {count}: each replica needs CPUs of its own, but --pin none gives it none")


def _check_hosts(spec: RunSpec) -> None:
    of_hosts = {
        "--via": spec.via != "ssh",
        "--host-python": bool(spec.host_python),
        "--unlike-hosts": spec.unlike_hosts,
        "--deliver": spec.deliver,
    }
    of_one = {
        f"--replicas {spec.replicas}": spec.replicas != "1",
        f"--policy-cpus {shown(spec.policy_cpus)}": bool(spec.policy_cpus),
        f"--pin {shown(spec.pin)}": spec.pin not in policies.PIN,
    }
    if wrong := [option for option, given in of_hosts.items() if given and not spec.on_hosts]:
        raise UsageError(f"{wrong[0]}: needs --hosts")
    if wrong := [option for option, given in of_one.items() if given and spec.on_hosts]:
        raise UsageError(f"{wrong[0]}: is for one machine: leave it out with --hosts")
    if spec.via not in VIAS:
        raise UsageError(f"--via {shown(spec.via)}: must be one of {', '.join(VIAS)}")
    if spec.ray and spec.via == "srun":
        raise UsageError("--ray: reaches hosts by itself: leave out --via")
    if spec.deliver and spec.way != "ray":
        raise UsageError("--deliver: goes through Ray's object store: give --ray")
    _check_host_names(spec.host_names)
    if spec.hosts and spec.hosts_file:
        _check_host_counts(spec)


def _check_host_names(names: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        if not HOST_NAME.fullmatch(name):
            raise UsageError(f"--hosts {shown(name)}: is no name of a host")
        if name in names[:number]:
            raise UsageError(f"--hosts {shown(name)}: is named twice, but a host has one replica of a cell")


def _check_host_counts(spec: RunSpec) -> None:
    if not all(count.isdecimal() and len(count) <= len(str(MAX_WORKERS)) for count in spec.hosts):
        raise UsageError("--hosts: --hosts-file names hosts, too: give one of them, or a count of hosts such as 1..4")
    _check_counts("--hosts", spec.host_counts, len(spec.hosts_file))
    if len(spec.host_counts) > 1 and len(spec.workers) > 1:
        raise UsageError("--hosts: with several counts of hosts, give one number of --workers, which each of them has")


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
    if not MIN_SECONDS <= value <= MAX_SECONDS:
        raise UsageError(
            f"{option} {value:g}: must be {otherwise}a number of seconds above 0, at most {MAX_SECONDS:.0f}"
        )
