"""Values with a language of their own: environments, backends, hosts, pinning and the learner's time.

Each is read from text as users write it, and its ``label`` reads back as the same value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vebench.backends import bracketed, registry
from vebench.backends.entry import MAX_COUNT
from vebench.child.actions import PolicyChoice, parse_policy, parse_time
from vebench.errors import UsageError, did_you_mean, shown
from vebench.machine.pinning import MEMORY_POLICIES, SMT_POLICIES
from vebench.plan import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from vebench.backends.bracketed import OptionValue
    from vebench.backends.entry import BackendEntry

_ALL_PEERS = "all-peers"
MISSING_ENV = "--env: a name is missing, such as Pong, HalfCheetah or CartPole; vebench list shows more"
_MISSING_BACKEND = "--backend: a name is missing; vebench list shows the backends"
_ADAPTER = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_VIAS = ("ssh", "srun", "ray")
# Nothing that ssh would take for an option, and nothing that a shell would.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_@.:%-]{1,255}", re.ASCII)
_MOST_LEARNER_STEPS = 1 << 40


@dataclass(frozen=True)
class BackendChoice:
    """A backend with its options."""

    name: str  # from the registry, or ``module:Class`` of a third party
    options: dict[str, bool | int | float | str] = field(default_factory=dict)
    python: str = ""  # the interpreter that the user named

    @property
    def label(self) -> str:
        """The choice as a user writes it: ``envpool-async@py312[ratio=2]``."""
        return bracketed.written(f"{self.name}@{self.python}" if self.python else self.name, self.options)

    @property
    def entry(self) -> BackendEntry:
        """The entry in the registry, or one made for a third party's adapter."""
        return registry.find(self.name)

    @property
    def is_ours(self) -> bool:
        """Whether it is in the registry."""
        return self.name in registry.BY_NAME


@dataclass(frozen=True)
class LearnerStep:
    """An assumed time of learning."""

    seconds: float
    steps: int | None = None  # per this many steps; None: per batch

    @property
    def label(self) -> str:
        """The time as a user writes it: ``0.3s/2048``."""
        return f"{self.seconds:g}s" if self.steps is None else f"{self.seconds:g}s/{self.steps}"


@dataclass(frozen=True)
class Pinning:
    """Which CPUs and memory cells get."""

    cpus: str = "compact"  # ``compact``, ``scatter``, ``none``, or a list such as ``0-3,8``
    smt: str = "last"  # when a core's second thread is used: ``last`` (after all cores), ``close`` (at once) or ``off``
    reserve: int = 0  # CPUs without a worker, whole cores as far as possible
    memory: str = "local"

    @property
    def pins(self) -> bool:
        """Whether cells are held to CPUs at all."""
        return self.cpus != "none"

    @property
    def label(self) -> str:
        """The pinning as a user writes it: ``compact[smt=off]``."""
        details: dict[str, OptionValue] = {}
        if self.smt != "last":
            details["smt"] = self.smt
        if self.reserve:
            details["reserve"] = self.reserve
        if self.memory != "local":
            details["mem"] = self.memory
        return bracketed.written(self.cpus, details)


@dataclass(frozen=True)
class Hosts:
    """The hosts on which a cell has a replica each."""

    names: tuple[str, ...] = ()  # empty: the nodes of a Ray cluster, which is asked for them when a plan is made
    counts: tuple[int, ...] = ()  # of hosts: a cell for each count, on the first hosts; empty: one cell on all hosts
    via: str = "ssh"
    address: str = "auto"  # of Ray's cluster
    python: str = ""  # on each host; by default this one's path, or Ray's
    unlike: bool = False  # hosts and their packages may differ

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of hosts that cells run on."""
        return self.counts or (len(self.names),)

    @property
    def label(self) -> str:
        """The hosts as a user writes them, without details: ``a,b,c``."""
        return ",".join(self.names) or f"ray[address={self.address}]"


def parse_envs(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the environments in ``texts``, each a list of ``NAME`` and ``NAME[KEY=VALUE,...]``.

    Arguments are sorted by key. A value is a bool, an int or a float if it reads as one, otherwise text. Raises
    UsageError for a missing name and for arguments that cannot be read.
    """
    return tuple(
        bracketed.written(name, {key: bracketed.value_of(given[key]) for key in sorted(given)})
        for text in texts
        for name, given in _bracketed("--env", text, MISSING_ENV)
    )


def parse_backends(texts: Sequence[str]) -> tuple[BackendChoice, ...]:
    """Return the backends in ``texts``, each a list of ``NAME``, ``NAME@PYTHON[KEY=VALUE,...]``, each once.

    ``module:Class`` names a third party's adapter, ``all-peers`` every backend that competes. Choices with the same
    meaning are equal: options with their default values are left out, the others are in a fixed order. Raises
    UsageError for an unknown name or option, and for a bad value.
    """
    found: dict[str, BackendChoice] = {}
    for text in texts:
        for name, given in _bracketed("--backend", text, _MISSING_BACKEND):
            if name == _ALL_PEERS and not given:
                choices = [BackendChoice(entry.name) for entry in registry.ENTRIES if entry.is_peer]
            else:
                choices = [_choice(text, name, given)]
            found |= {choice.label: choice for choice in choices}
    return tuple(found.values())


def _bracketed(option: str, text: str, missing: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the names in a list joined by commas, with their brackets. Raises UsageError."""
    try:
        for name, bracket in bracketed.split(text):
            if not name:
                raise UsageError(missing)
            yield name, {} if bracket is None else bracketed.pairs(bracket)
    except ValueError as error:
        raise UsageError(f"{option} {shown(text)}: {error}; write NAME[KEY=VALUE,...]") from None


def _choice(text: str, named: str, given: dict[str, str]) -> BackendChoice:
    name, at, python = (part.strip() for part in named.partition("@"))
    if at and not python:
        raise UsageError(f"--backend {shown(text)}: a Python is missing after @, such as {name}@venv/bin/python")
    if not name:
        raise UsageError(_MISSING_BACKEND)
    if ":" in name:
        if not _ADAPTER.fullmatch(name):
            raise UsageError(f"--backend {shown(name)}: a third party's adapter is named module:Class")
        return BackendChoice(name, {key: bracketed.value_of(given[key]) for key in sorted(given)}, python)
    entry = registry.BY_NAME.get(name)
    if entry is None:
        of_class = [one.name for one in registry.ENTRIES if name.casefold() in re.split(r"\W+", one.summary.casefold())]
        near = f" (did you mean {' or '.join(of_class)}?)" if of_class else did_you_mean(name, registry.BY_NAME)
        raise UsageError(f"--backend {shown(name)}: no such backend{near}; vebench list shows them")
    if python and not entry.builds_environments:
        raise UsageError(f"--backend {shown(named)}: {name} steps nothing: leave out @{python}")
    return BackendChoice(name, dict(_known_options(entry, given)), python)


def _known_options(entry: BackendEntry, given: dict[str, str]) -> Iterable[tuple[str, OptionValue]]:
    for key in given:
        if key not in entry.options:
            known = f"it has {', '.join(entry.options)}" if entry.options else "it has none"
            near = did_you_mean(key, entry.options)
            raise UsageError(f"--backend {entry.name}: no option {shown(key)}{near}; {known}")
    for key, option in entry.options.items():
        if key not in given:
            continue
        try:
            value = option.parse(given[key])
        except ValueError as error:
            raise UsageError(f"--backend {entry.name}[{key}={shown(given[key])}]: {key} must be {error}") from None
        if value != option.default:
            yield key, value


def parse_pin(text: str) -> Pinning:
    """Return the pinning in ``compact``, ``0-3,8[mem=bind]`` or ``scatter[smt=off,reserve=2]``. Raises ValueError."""
    cpus, details = _detailed(text, ("smt", "reserve", "mem"))
    reserve = _detail("reserve", kinds.whole(0, MAX_COUNT).read, details.get("reserve", "0"))
    return Pinning(cpus, details.get("smt", "last"), reserve, details.get("mem", "local"))


def check_pin(pin: Pinning) -> None:
    """Raise ValueError if there is no such pinning. Whether the machine has the CPUs is not checked."""
    if pin.smt not in SMT_POLICIES:
        raise ValueError(f"smt must be one of {', '.join(SMT_POLICIES)}")
    _detail("reserve", kinds.whole(0, MAX_COUNT).check, pin.reserve)
    if pin.memory not in MEMORY_POLICIES:
        raise ValueError(f"mem must be one of {', '.join(MEMORY_POLICIES)}")
    if pin.memory != "local" and not pin.pins:
        raise ValueError("without CPUs of its own, a cell has no memory nodes of its own")


def parse_hosts(text: str) -> Hosts:
    """Return the hosts of ``a,b[via=srun]``, ``@FILE``, or ``ray`` for a Ray cluster. Raises ValueError."""
    listed, details = _detailed(text, ("via", "count", "address", "python", "unlike"), ("count",))
    names = [name for part in listed.split(",") for name in _hosts_in(part.strip())]
    all_of_ray = names == ["ray"]
    unlike = bracketed.value_of(details.get("unlike", "false"))
    if not isinstance(unlike, bool):
        raise ValueError("unlike must be true or false")  # noqa: TRY004 - the text is wrong, not its type
    return Hosts(
        names=() if all_of_ray else tuple(names),
        counts=_detail("count", kinds.counts().read, details["count"]) if "count" in details else (),
        via=details.get("via", "ray" if all_of_ray else "ssh"),
        address=details.get("address", "auto"),
        python=details.get("python", ""),
        unlike=unlike,
    )


def _hosts_in(part: str) -> list[str]:
    """Return the name of a host, or the names in ``@FILE``: the first word of each line, as in a list for mpirun."""
    from vebench.files import contents  # it loads msgspec

    if not part:
        raise ValueError("a name is missing")
    if not part.startswith("@"):
        return [part]
    try:
        lines = contents(Path(part[1:])).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(getattr(error, "strerror", None) or str(error)) from None
    words = [line.partition("#")[0].split() for line in lines]
    if not any(words):
        raise ValueError("the file names no host")
    return [line[0] for line in words if line]


def check_hosts(hosts: Hosts) -> None:
    """Raise ValueError for a name that is not a host's, a host that is named twice, and an unknown way."""
    if hosts.via not in _VIAS:
        raise ValueError(f"via={shown(hosts.via)} must be one of {', '.join(_VIAS)}")
    for number, name in enumerate(hosts.names):
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not the name of a host")
        if name in hosts.names[:number]:
            raise ValueError(f"{shown(name)} is named twice, but a host has one replica of a cell")
    if hosts.counts:
        _detail("count", kinds.counts(len(hosts.names) or MAX_COUNT).check, hosts.counts)


def parse_learner(text: str) -> LearnerStep:
    """Return the time in ``4ms``, for each batch, or ``300ms/2048``, for each 2,048 steps. Raises ValueError."""
    time, slash, steps = text.strip().partition("/")
    try:
        count = kinds.whole(0, _MOST_LEARNER_STEPS).read(steps) if slash else None
        return LearnerStep(parse_time(time), count)
    except ValueError:
        raise ValueError("write a time such as 4ms, for each batch, or 300ms/2048, for each 2,048 steps") from None


def check_learner(learner: LearnerStep) -> None:
    """Raise ValueError for a time or a number of steps out of bounds."""
    kinds.seconds().check(learner.seconds)
    if learner.steps is not None:
        kinds.whole(1, _MOST_LEARNER_STEPS).check(learner.steps)


def check_policy(chosen: PolicyChoice) -> None:
    """Raise ValueError for a policy that no text gives: it comes from a file."""
    if parse_policy(chosen.label) != chosen:
        raise ValueError("not as vebench writes it")


def _detailed(text: str, keys: Collection[str], lists: Collection[str] = ()) -> tuple[str, dict[str, str]]:
    """Return the text before the brackets, and the details in them. Values of ``lists`` may have commas."""
    first, bracket, rest = text.strip().partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError("brackets do not match")
    details = bracketed.pairs(rest[:-1], lists) if bracket else {}
    if unknown := [key for key in details if key not in keys]:
        near = did_you_mean(unknown[0], keys)
        raise ValueError(f"no detail {shown(unknown[0])}{near}; it has {', '.join(keys)}")
    return first.strip(), details


def _detail(name: str, of: Callable[[Any], Any], value: Any) -> Any:
    """Return what ``of`` returns, and name the detail in its ValueError."""
    try:
        return of(value)
    except ValueError as error:
        raise ValueError(f"{name} {shown(str(value))}: {error}") from None
