"""How an option is declared, and the kinds of values that options take.

A kind reads a value, from text as the command line has it or from a Python value, checks its bounds and writes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vebench.backends import bracketed, registry
from vebench.backends.entry import MAX_COUNT
from vebench.child.actions import PolicyChoice, parse_policy, parse_time
from vebench.errors import UsageError, did_you_mean, shown
from vebench.machine.pinning import MEMORY_POLICIES, SMT_POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from vebench.backends.bracketed import OptionValue
    from vebench.backends.entry import BackendEntry

# Groups of options in the help, in its order. Options of the last group are rare: only --help-all shows them.
GROUPS = ("What to measure", "How long", "Where", "Verdict", "Output and files", "Advanced")
WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT, ADVANCED = GROUPS

_LONGEST_S = 31 * 86400.0  # a month: longer waits overflow in system calls
_SHORTEST_S = 1e-9  # the resolution of a clock that counts nanoseconds
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 60

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_RANGE = re.compile(r"(-?\d+)(?:\.\.(-?\d+)(?::([+*])(-?\d+))?)?", re.ASCII)
_UNITS_OF_TIME = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS_OF_SIZE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COUNTS_GRAMMAR = "give numbers from 1 on such as 8, 1,2,4, 1..256 (doubles), 1..16:+5 (adds) or 1..81:*3 (multiplies)"


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("must be text")  # noqa: TRY004 - every kind raises ValueError
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
    return given


def _texts(given: Any) -> list[str]:
    if isinstance(given, str | int):
        return [_text(str(given))]
    if not isinstance(given, Sequence):
        raise ValueError("must be text, or a list")  # noqa: TRY004 - every kind raises ValueError
    return [_text(str(one)) for one in given]


def _any(_: Any) -> None:
    """Accept every value."""


def _written(value: Any) -> str:
    return str(getattr(value, "label", value))


@dataclass(frozen=True)
class Kind:
    """A kind of values, by default any text."""

    read: Callable[[Any], Any] = _text  # raises ValueError
    check: Callable[[Any], None] = _any  # raises ValueError for a value out of bounds
    written: Callable[[Any], str] = _written  # as a user types it
    many: bool = False  # the option may be repeated
    named: bool | None = None  # the value of a switch that is named; None: the option has a value
    choices: Callable[[], Iterable[str]] = tuple  # words that a shell can complete


def switch(*, named: bool = True) -> Kind:
    """Return the kind of true and false. On the command line, naming the option sets ``named``."""

    def read(given: Any) -> bool:
        value = bracketed.value_of(given) if isinstance(given, str) else given
        if not isinstance(value, bool):
            raise ValueError("must be true or false")  # noqa: TRY004 - every kind raises ValueError
        return value

    return Kind(read, named=named)


def word(*words: str) -> Kind:
    """Return the kind of these words."""

    def check(value: str) -> None:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")

    return Kind(check=check, choices=lambda: words)


FILE = Kind(Path)


def whole(least: int, most: int, word: str = "") -> Kind:
    """Return the kind of whole numbers within bounds, and of a word."""
    bounds = f"must be a whole number from {least} to {most}{word and f', or {word}'}"

    def read(given: Any) -> int | str:
        if word and given == word:
            return word
        digits = given.removeprefix("-") if isinstance(given, str) else ""
        if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(most)):
            return int(given)
        if type(given) is not int:
            raise ValueError(bounds)
        return given

    def check(value: int | str) -> None:
        if value != word and not (isinstance(value, int) and least <= value <= most):
            raise ValueError(bounds)

    return Kind(read, check)


def counts(most: int = MAX_COUNT) -> Kind:
    """Return the kind of ascending counts: numbers and ranges joined by commas.

    A range includes both ends. ``1..256`` doubles from the first count, ``1..16:+5`` adds, ``1..81:*3`` multiplies.
    """

    def read(given: Any) -> tuple[int, ...]:
        terms = [term.strip() for text in _texts(given) for term in text.split(",")]
        try:
            return tuple(sorted({count for term in terms for count in _expanded(term, most)}))
        except ValueError as error:
            raise ValueError(f"{error}; {_COUNTS_GRAMMAR}") from None

    def check(value: Sequence[int]) -> None:
        if not value:
            raise ValueError("give at least one number")
        if not 1 <= min(value) <= max(value) <= most:
            raise ValueError(f"must be a whole number from 1 to {most}")
        if list(value) != sorted(set(value)):
            raise ValueError("numbers must ascend, each once")

    return Kind(read, check, lambda value: ",".join(map(str, value)), many=True)


def _expanded(term: str, most: int) -> Iterator[int]:
    match = _RANGE.fullmatch(term)
    if match is None:
        raise ValueError(f"{shown(term)} is not a number or a range" if term else "a number is missing")
    first = _count(match[1], most)
    last = first if match[2] is None else _count(match[2], most)
    step = 2 if match[4] is None else _count(match[4], most)
    adds = match[3] == "+"
    if last < first:
        raise ValueError(f"{shown(term)} runs backwards")
    if step == 1 and not adds:
        raise ValueError(f"{shown(term)} never grows")
    while first < last:
        yield first
        first = first + step if adds else first * step
    yield last


def _count(digits: str, most: int) -> int:
    if digits.startswith("-"):
        raise ValueError(f"{shown(digits)} is negative")
    digits = digits.lstrip("0")
    if not digits:
        raise ValueError("0 is too few")
    # Check the length first: Python refuses to convert thousands of digits.
    if len(digits) > len(str(most)) or int(digits) > most:
        raise ValueError(f"{shown(digits)} is more than {most}")
    return int(digits)


def doubled(most: int) -> tuple[int, ...]:
    """Return the counts ``1..most``: 1, 2, 4 and so on, and ``most``."""
    return tuple(_expanded(f"1..{most}", most))


def seconds(*, or_none: bool = False) -> Kind:
    """Return the kind of times: ``90``, ``250ms``, ``2m`` or ``1.5h``. With ``or_none``, 0 is allowed."""

    def read(given: Any) -> float:
        text = given.strip() if isinstance(given, str) else given
        number = text.rstrip("umsh") if isinstance(text, str) else text
        unit = text[len(number) :] if isinstance(text, str) else ""
        if unit not in _UNITS_OF_TIME:
            number = ""
        return _number(number, "write a time such as 250ms, 90s, 2m or 1h") * _UNITS_OF_TIME.get(unit, 1.0)

    def check(value: float) -> None:
        # A comparison with NaN is false.
        if not _SHORTEST_S <= value <= _LONGEST_S and not (or_none and value == 0):
            raise ValueError(f"must be {'0 or ' if or_none else ''}above 0 seconds, at most {_LONGEST_S:.0f}")

    return Kind(read, check, time_of)


def time_of(seconds: float) -> str:
    """Return a time as a user writes it: ``500ms``, ``90s``, ``5m``."""
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        return f"{minutes:g}m"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def share() -> Kind:
    """Return the kind of shares between 0 and 1: ``5%`` or ``0.05``."""

    def read(given: Any) -> float:
        percent = isinstance(given, str) and given.strip().endswith("%")
        number = _number(given.strip().removesuffix("%") if percent else given, "write a share such as 5% or 0.05")
        return number / 100 if percent else number

    def check(value: float) -> None:
        if not 0 < value < 1:
            raise ValueError("must be between 0% and 100%")

    return Kind(read, check, lambda value: f"{100 * value:g}%")


def size() -> Kind:
    """Return the kind of numbers of bytes: ``512M`` or ``8G``."""

    def read(given: Any) -> int:
        if type(given) is int:
            return given
        text = _text(given).strip().upper().removesuffix("B").removesuffix("I")
        unit = text[-1:] if text[-1:] in _UNITS_OF_SIZE else ""
        return int(_number(text.removesuffix(unit), "write a size such as 512M or 8G") * _UNITS_OF_SIZE[unit])

    def check(value: int) -> None:
        if not _LEAST_BYTES <= value <= _MOST_BYTES:
            raise ValueError("must be at least 1M: write a size such as 512M or 8G")

    return Kind(read, check)


def _number(given: Any, problem: str) -> float:
    if isinstance(given, str):
        text = given.strip()
        given = float(text) if _NUMBER.fullmatch(text) else None
        if given is not None and not math.isfinite(given):
            given = None
    if type(given) not in {int, float}:
        raise ValueError(problem)
    return float(given)


def parsed(parse: Callable[[str], Any], check: Callable[[Any], None]) -> Kind:
    """Return the kind of values with a language of their own. Both functions raise ValueError."""
    return Kind(lambda given: parse(_text(given)), check)


def listed(parse: Callable[[Sequence[str]], Any] = tuple, choices: Callable[[], Iterable[str]] = tuple) -> Kind:
    """Return the kind of values that ``parse`` reads from texts, each a list joined by commas."""
    return Kind(
        lambda given: parse(_texts(given)),
        written=lambda value: ",".join(map(_written, value)),
        many=True,
        choices=choices,
    )


@dataclass(frozen=True)
class Option:
    """An option: of the command line by its ``flags``, of Python functions and run files by its ``name``."""

    name: str
    flags: tuple[str, ...]
    group: str
    metavar: str  # empty for a switch
    help: str
    kind: Kind

    def value(self, given: Any) -> Any:
        """Return the value of a text or of a Python value. Raises UsageError for a bad one."""
        try:
            value = self.kind.read(given)
            self.kind.check(value)
        except ValueError as error:
            text = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
            raise UsageError(f"{self.flags[0]} {shown(text)}: {error}") from None
        return value

    def check(self, value: Any) -> None:
        """Raise UsageError for a value that is out of bounds."""
        try:
            self.kind.check(value)
        except ValueError as error:
            raise UsageError(f"{self.flags[0]} {shown(self.kind.written(value))}: {error}") from None

    def typed(self, given: Any) -> list[str]:
        """Return the words of a command line that give the same value as ``given``."""
        if self.kind.named is not None:
            return [self.flags[0]] if given is self.kind.named else []
        many = isinstance(given, Sequence) and not isinstance(given, str)
        return [self.flags[0], ",".join(map(str, given)) if many else str(given)]


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
    reserve = _detail("reserve", whole(0, MAX_COUNT).read, details.get("reserve", "0"))
    return Pinning(cpus, details.get("smt", "last"), reserve, details.get("mem", "local"))


def check_pin(pin: Pinning) -> None:
    """Raise ValueError if there is no such pinning. Whether the machine has the CPUs is not checked."""
    if pin.smt not in SMT_POLICIES:
        raise ValueError(f"smt must be one of {', '.join(SMT_POLICIES)}")
    _detail("reserve", whole(0, MAX_COUNT).check, pin.reserve)
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
        counts=_detail("count", counts().read, details["count"]) if "count" in details else (),
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
        _detail("count", counts(len(hosts.names) or MAX_COUNT).check, hosts.counts)


def parse_learner(text: str) -> LearnerStep:
    """Return the time in ``4ms``, for each batch, or ``300ms/2048``, for each 2,048 steps. Raises ValueError."""
    time, slash, steps = text.strip().partition("/")
    try:
        count = whole(0, _MOST_LEARNER_STEPS).read(steps) if slash else None
        return LearnerStep(parse_time(time), count)
    except ValueError:
        raise ValueError("write a time such as 4ms, for each batch, or 300ms/2048, for each 2,048 steps") from None


def check_learner(learner: LearnerStep) -> None:
    """Raise ValueError for a time or a number of steps out of bounds."""
    seconds().check(learner.seconds)
    if learner.steps is not None:
        whole(1, _MOST_LEARNER_STEPS).check(learner.steps)


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
