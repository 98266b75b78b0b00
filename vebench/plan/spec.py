"""What was asked for, parsed once into immutable values. Nothing past the command line sees its text.

An option of ``vebench run`` that decides what is measured is declared once, as a field of ``RunSpec``: its default,
what its help says, and how its text is parsed. ``vebench.options`` makes command-line options of the fields. ``check``
has their bounds, since a spec is also read from run files. A field that the measuring child acts on stands in
``vebench.child.request.Settings``, too.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field
from typing import Any, NamedTuple

from vebench.errors import UsageError, shown
from vebench.machine import policies

MAX_WORKERS = 1 << 16
MAX_ENVS_PER_WORKER = 1 << 16
MAX_ROUNDS = 1 << 16
MAX_REPEATS = 1 << 10
MAX_REPLICAS = 1 << 10
PER_NODE = "node"
# Environment i is seeded with seed + i, and EnvPool takes seeds of 32 bits: this leaves room for every i.
MAX_SEED = 2_000_000_000
MIN_SECONDS = 1e-9  # a clock that counts nanoseconds sees nothing shorter
# A month: longer waits overflow in the system's calls.
MAX_SECONDS = 31 * 86400.0
MOST_WARMUPS = 5  # as often as long as it was asked for may a warm-up take, until the rate has settled
# What a cell may need to start, at the least, when a timeout is suggested.
STARTUP_ALLOWANCE = 30.0


@dataclass(frozen=True)
class BackendChoice:
    """A backend by name (or a third party's by ``module:Class``) and the options that were given to it."""

    name: str
    options: dict[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The choice as a user writes it: ``envpool-async[ratio=2]``."""
        if not self.options:
            return self.name
        return f"{self.name}[{','.join(f'{key}={value}' for key, value in self.options.items())}]"


class Option(NamedTuple):
    """How a field is set on the command line.

    ``names`` are those of the option, by default the field's. ``parse`` is the function of ``vebench.plan.grammar``
    that makes the value of its text, or of its texts if it may be ``repeated``; by default the text is the value. A
    field without a default is made of the texts ``otherwise`` where the option is not given.
    """

    metavar: str
    meaning: str
    names: tuple[str, ...] = ()
    parse: str = ""
    repeated: bool = False
    otherwise: tuple[str, ...] = ()


def option(default: object, metavar: str, meaning: str, *names: str, **how: Any) -> Any:  # noqa: ANN401 - as ``field`` has it
    """Declare a field that an option sets; without the option, it has its default. ``how`` are ``Option``'s others."""
    return field(default=default, metadata={"option": Option(metavar, meaning, names, **how)})


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides what a run measures. Times are in seconds; no ``backends`` means all that can run.

    With ``until``, passes go on after ``repeats`` until each interval is within that share of its median, or until
    ``budget`` seconds have gone by since then. With ``interleave``, cells of a pass take turns, window by window.
    """

    envs: tuple[str, ...] = option(
        MISSING,
        "ENV",
        "Pong, HalfCheetah, CartPole-v1, MODULE:ID ... Comma or repeat.",
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
        "A name from vebench list, NAME[KEY=VALUE,...] or MODULE:CLASS. Comma or repeat. Default: all.",
        *("--backend", "-b"),
        parse="parse_backends",
        repeated=True,
    )
    envs_per_worker: int = option(1, "N", "Environments stepped at a time for each worker.")
    duration: float = option(1.0, "SECONDS", "Length of one window.")
    rounds: int = option(6, "N", "Windows of each cell.")
    warmup: float = option(1.0, "SECONDS", "What runs before the first window, at least.")
    repeats: int = option(1, "N", "Passes over all cells, each in an order of its own.")
    until: float | None = option(
        None, "SHARE", "Go on with passes until each interval is within this, such as 2%.", parse="parse_share"
    )
    budget: float = option(600.0, "SECONDS", "The most that --until adds.")
    interleave: bool = option(
        False, "", "Let cells take turns, window by window: steadier speedups on a noisy machine."
    )
    seed: int = option(0, "N", "Of environments, actions and the order of cells.")
    pin: str = option("compact", "CPUS", "CPUs of a cell: compact, scatter, none, or a list such as 0-3,8.")
    membind: str = option("local", "HOW", "Memory of a cell: local, bind (to its CPUs' nodes) or preferred.")
    replicas: str = option(
        "1", "N", "Copies of the backend in a cell, each in a process and on CPUs of its own: a number, or node."
    )
    smt: str = option("last", "WHEN", "A core's second thread: last (after all cores), off, or close (at once).")
    timeout: float = option(300.0, "SECONDS", "After which a cell is ended.")

    @property
    def cell_seconds(self) -> float:
        """How long one cell measures: warm-up and windows. Start-up comes on top."""
        return self.warmup + self.rounds * self.duration

    @property
    def longest_warmup(self) -> float:
        """How long a warm-up may take whose rate does not settle; what the timeout leaves beyond that is halved."""
        return self.warmup + min((MOST_WARMUPS - 1) * self.warmup, max(0.0, self.timeout - self.cell_seconds) / 2)


def check(spec: RunSpec) -> None:
    """Raise UsageError, with the option's name, if a number of ``spec`` makes no sense."""
    if not spec.envs:
        raise UsageError("--env: name at least one environment, such as Pong, HalfCheetah or CartPole")
    if not spec.workers:
        raise UsageError("--workers: give at least one number")
    for workers in spec.workers:
        check_count("--workers", workers, 1, MAX_WORKERS)
    if list(spec.workers) != sorted(set(spec.workers)):
        raise UsageError("--workers: numbers must ascend, each once")
    check_count("--envs-per-worker", spec.envs_per_worker, 1, MAX_ENVS_PER_WORKER)
    check_count("--rounds", spec.rounds, 1, MAX_ROUNDS)
    check_count("--repeats", spec.repeats, 1, MAX_REPEATS)
    check_count("--seed", spec.seed, 0, MAX_SEED)
    check_smt(spec.smt)
    _check_membind(spec)
    _check_replicas(spec)
    _check_seconds("--duration", spec.duration)
    _check_seconds("--timeout", spec.timeout)
    _check_seconds("--budget", spec.budget)
    if spec.until is not None and not 0 < spec.until < 1:
        raise UsageError(f"--until {spec.until:g}: must lie between 0% and 100%")
    if spec.warmup != 0:
        _check_seconds("--warmup", spec.warmup, "0 or ")
    if spec.timeout <= spec.cell_seconds:
        enough = math.ceil(spec.cell_seconds + STARTUP_ALLOWANCE)
        raise UsageError(
            f"--timeout {spec.timeout:g}: warm-up and windows alone take {spec.cell_seconds:g} s; {enough} would do"
        )


def check_smt(policy: str) -> None:
    """Raise UsageError unless ``policy`` is one of those for a core's second threads."""
    if policy not in policies.SMT:
        raise UsageError(f"--smt {shown(policy)}: must be one of {', '.join(policies.SMT)}")


def _check_membind(spec: RunSpec) -> None:
    if spec.membind not in policies.MEMORY:
        raise UsageError(f"--membind {shown(spec.membind)}: must be one of {', '.join(policies.MEMORY)}")
    if spec.membind != "local" and spec.pin == "none":
        raise UsageError(f"--membind {spec.membind}: a cell without CPUs of its own has no memory nodes of its own")


def _check_replicas(spec: RunSpec) -> None:
    count = spec.replicas
    number = int(count) if count.isascii() and count.isdecimal() and len(count) <= len(str(MAX_REPLICAS)) else 0
    if count != PER_NODE and not 1 <= number <= MAX_REPLICAS:
        raise UsageError(f"--replicas {shown(count)}: must be a whole number from 1 to {MAX_REPLICAS}, or {PER_NODE}")
    if count != "1" and spec.interleave:
        raise UsageError(
            f"--replicas {count}: does not go with --interleave: replicas keep in step with each other, not in turn"
        )
    if count != "1" and spec.pin == "none":
        raise UsageError(f"--replicas {count}: each has CPUs of its own, which --pin none denies it")


def check_count(option: str, value: int, least: int, most: int) -> None:
    """Raise UsageError, with the option's name, unless ``value`` lies between ``least`` and ``most``."""
    if not least <= value <= most:
        raise UsageError(f"{option} {value}: must be a whole number from {least} to {most}")


def _check_seconds(option: str, value: float, otherwise: str = "") -> None:
    # Any comparison with NaN is false.
    if not MIN_SECONDS <= value <= MAX_SECONDS:
        raise UsageError(
            f"{option} {value:g}: must be {otherwise}a number of seconds above 0, at most {MAX_SECONDS:.0f}"
        )
