"""Declares options, and reads, checks and writes their values.

Numbers, times and words come first, then values with a language of their own: environments, backends, hosts, pinning
and the learner's time. Texts from ``label`` and ``Kind.written`` read back as the same value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vebench.backends import bracketed, registry
from vebench.backends.bracketed import OptionValue
from vebench.backends.entry import MAX_COUNT, BackendEntry
from vebench.backends.environments.suites import short_name
from vebench.errors import UsageError, did_you_mean, shown
from vebench.machine.kernel import SMT_POLICIES

# Groups of options, in the order of the help. Options of the last group are rare, so only --help-all shows them.
GROUPS = ("What to measure", "How long", "Where", "How to judge", "Output and files", "Advanced")
WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT, ADVANCED = GROUPS

MISSING_NAME = "a name is missing; vebench list shows them"


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
        given = [given]
    if not isinstance(given, Sequence):
        raise ValueError("must be text, or a list")  # noqa: TRY004 - every kind raises ValueError
    return [_text(_written(one)) for one in given]


def _written(value: Any) -> str:
    return str(getattr(value, "label", value))


@dataclass(frozen=True)
class Kind:
    """A kind of values, by default any text."""

    read: Callable[[Any], Any] = _text  # returns the value of a text or Python value; raises ValueError if it is bad
    written: Callable[[Any], str] = _written  # returns the text that a user would type
    many: bool = False  # whether the option may be repeated
    named: bool | None = None  # the value that naming a switch sets; None for an option that takes a value
    choices: Callable[[], Iterable[str]] = tuple  # returns words that a shell can complete


@dataclass(frozen=True)
class Option:
    """An option. The command line uses its ``flags``, Python functions and run files use its ``name``."""

    name: str
    flags: tuple[str, ...]
    group: str
    metavar: str  # empty for a switch
    help: str
    kind: Kind

    def value(self, given: Any) -> Any:
        """Return the value of a text or of a Python value. Raises UsageError if it is bad."""
        try:
            return self.kind.read(given)
        except ValueError as error:
            text = ",".join(map(_written, given)) if isinstance(given, list | tuple) else _written(given)
            raise UsageError(f"{self.flags[0]} {shown(text)}: {error}") from None

    def check(self, value: Any) -> None:
        """Raise UsageError unless this is a value that the method ``value`` returns."""
        if self.value(value) != value:
            raise UsageError(f"{self.flags[0]} {shown(self.kind.written(value))}: not as vebench writes it")

    def typed(self, given: Any) -> list[str]:
        """Return the words of a command line that set the option to ``given``."""
        if self.kind.named is not None:
            return [self.flags[0]] if given is self.kind.named else []
        many = isinstance(given, Sequence) and not isinstance(given, str)
        return [self.flags[0], ",".join(map(str, given)) if many else str(given)]


FILE = Kind(Path)


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

    def read(given: Any) -> str:
        if given not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(given)

    return Kind(read, choices=lambda: words)


def whole(least: int, most: int, word: str = "") -> Kind:
    """Return the kind of whole numbers from ``least`` to ``most``. A ``word`` is also allowed, if given."""

    def read(given: Any) -> int | str:
        if word and given == word:
            return word
        number = int(given) if isinstance(given, str) and re.fullmatch(r"-?\d{1,18}", given, re.ASCII) else given
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"must be a whole number from {least} to {most}{word and f', or {word}'}")
        return number

    return Kind(read)


def counts(most: int = MAX_COUNT) -> Kind:
    """Return the kind of ascending counts, written as numbers and ranges joined by commas.

    A range includes both ends. ``1..256`` doubles from the first count. ``1..16:+5`` adds 5. ``1..81:*3`` multiplies by
    3.
    """

    def read(given: Any) -> tuple[int, ...]:
        terms = [term.strip() for text in _texts(given) for term in text.split(",")]
        if not terms:
            raise ValueError("give at least one number")
        return tuple(sorted({count for term in terms for count in _expanded(term, most)}))

    return Kind(read, lambda value: ",".join(map(str, value)), many=True)


def _expanded(term: str, most: int) -> Iterator[int]:
    match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9})(?::([+*])(\d{1,9}))?)?", term, re.ASCII)
    first, last, sign, given = match.groups() if match else ("0", None, None, None)
    count, end, step = int(first), int(last or first), int(given or 2)
    adds = sign == "+"
    if not 1 <= count <= end <= most or step < (1 if adds else 2):
        examples = "8, 1,2,4, 1..256 (doubles), 1..16:+5 (adds) or 1..81:*3 (multiplies)"
        raise ValueError(f"give numbers from 1 to {most}: {examples}")
    while count < end:
        yield count
        count = count + step if adds else count * step
    yield end


def doubled(most: int) -> tuple[int, ...]:
    """Return the counts ``1..most``: 1, 2, 4 and so on, and ``most``."""
    return tuple(_expanded(f"1..{most}", most))


def _quantity(given: Any, units: Mapping[str, float], example: str) -> float:
    """Return a finite number, or the product of a number and its unit in a text."""
    if isinstance(given, str):
        number = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z%]*)"
        match = re.fullmatch(number, given.strip(), re.ASCII | re.IGNORECASE)
        if match is None or match[2] not in units:
            raise ValueError(example)
        given = float(match[1]) * units[match[2]]
    if type(given) not in {int, float} or not math.isfinite(given):
        raise ValueError(example)
    return float(given)


def seconds(*, or_none: bool = False) -> Kind:
    """Return the kind of times: ``90``, ``250ms``, ``2m`` or ``1.5h``. With ``or_none``, ``none`` is 0."""
    units = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    shortest, longest = 1e-9, 31 * 86400.0  # longer waits than a month overflow in system calls

    def read(given: Any) -> float:
        none = or_none and given in ("none", 0)
        value = 0.0 if none else _quantity(given, units, "write a time such as 250ms, 90s, 2m or 1h")
        if not shortest <= value <= longest and not (or_none and value == 0):
            raise ValueError(f"must be {'none or ' if or_none else ''}above 0 seconds, at most {longest:.0f}")
        return value

    return Kind(read, time_of)


def time_of(seconds: float) -> str:
    """Return a time as a user writes it: ``500ms``, ``90s``, ``5m``."""
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        return f"{minutes:g}m"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def share() -> Kind:
    """Return the kind of shares between 0 and 1: ``5%`` or ``0.05``."""

    def read(given: Any) -> float:
        number = _quantity(given, {"": 1, "%": 1}, "write a share such as 5% or 0.05")
        value = number / 100 if isinstance(given, str) and "%" in given else number
        if not 0 < value < 1:
            raise ValueError("must be between 0% and 100%: write a share such as 5% or 0.05")
        return value

    return Kind(read, lambda value: f"{100 * value:g}%")


COSTS = ("startup", "memory")  # the metrics of gates that are not rates; less is better


@dataclass(frozen=True)
class Tolerance:
    """By how much tasks may become worse, as shares. None: the task is advisory, which means that it never fails."""

    usual: float | None
    of_tasks: tuple[tuple[str, float | None], ...] = ()  # by the names that the user gave

    @property
    def label(self) -> str:
        """The tolerance as a user writes it: ``10%,Pong=5%,Ant=off``."""
        places = [("", self.usual), *((f"{task}=", most) for task, most in self.of_tasks)]
        return ",".join(f"{place}{'off' if most is None else f'{100 * most:g}%'}" for place, most in places)

    def of(self, env: str) -> float | None:
        """Return the tolerance of a task, given its full name."""
        names = (env.casefold(), short_name(env).casefold())
        return next((most for task, most in self.of_tasks if task.casefold() in names), self.usual)


def tolerance(usual: float) -> Kind:
    """Return the kind of tolerances: ``5%``, or for tasks ``10%,Pong=5%,Ant=off``. Other tasks have ``usual``."""

    def read(given: Any) -> Tolerance:
        if not isinstance(given, str):
            return given if isinstance(given, Tolerance) else Tolerance(share().read(given))
        found: dict[str, float | None] = {}
        for term in re.split(r",(?![^\[]*\])", given):  # not at commas between arguments of an environment
            task, _, most = (part.strip() for part in term.rpartition("="))
            if task in found:
                raise ValueError(f"{task or 'the tolerance of all tasks'} is given twice")
            found[task] = None if most == "off" else share().read(most)
        return Tolerance(found.pop("", usual), tuple(found.items()))

    return Kind(read)


def judged() -> Kind:
    """Return the kind of lists of costs and ways to compare rates: ``rate`` is ``yardstick``."""
    known = {"rate": "yardstick"} | {name: name for name in ("yardstick", "speedup", "fps", *COSTS)}
    one = word(*known)

    def parse(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(known[one.read(name)] for name in ",".join(texts).split(",")))

    return listed(parse, one.choices)


def size() -> Kind:
    """Return the kind of numbers of bytes: ``512M`` or ``8G``."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

    def read(given: Any) -> int:
        text = given.strip().upper().removesuffix("B").removesuffix("I") if isinstance(given, str) else given
        value = _quantity(text, units, "write a size such as 512M or 8G")
        if not 1 << 20 <= value <= 1 << 60 or value != int(value):
            raise ValueError("must be at least 1M: write a size such as 512M or 8G")
        return int(value)

    return Kind(read)


def parsed(parse: Callable[[str], Any]) -> Kind:
    """Return the kind of values that ``parse`` reads from text. The text of a value is its ``label``."""
    return Kind(lambda given: parse(_text(getattr(given, "label", given))))


def listed(parse: Callable[[Sequence[str]], Any] = tuple, choices: Callable[[], Iterable[str]] = tuple) -> Kind:
    """Return the kind of values that ``parse`` reads from texts. Each text is a list joined by commas."""
    return Kind(
        lambda given: parse(_texts(given)), lambda value: ",".join(map(_written, value)), many=True, choices=choices
    )


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
        return registry.find(self.name, self.options)

    @property
    def is_ours(self) -> bool:
        """Whether it is in the registry."""
        return self.name in registry.BY_NAME


@dataclass(frozen=True)
class LearnerStep:
    """A time of learning, assumed or measured."""

    seconds: float
    steps: int | None = None  # the number of steps that take ``seconds``; None: each batch takes them
    threads: int = 0  # the threads with which ``seconds`` was measured; 0 if it is assumed
    fewer: tuple[float, ...] = ()  # the measured seconds with 1, 2, 4 ... threads, fewer than ``threads``
    error: float = 0.0  # the standard error of the logarithm of ``seconds``
    overlaps: bool = False  # whether sampling goes on meanwhile

    @property
    def label(self) -> str:
        """The time as a user writes it: ``0.3s/2048``."""
        time = f"{self.seconds!r}s" if self.steps is None else f"{self.seconds!r}s/{self.steps}"
        details: dict[str, OptionValue] = {"threads": self.threads, "error": self.error, "overlaps": self.overlaps}
        details["fewer"] = "+".join(map(repr, self.fewer))
        return _with_details(time, details, (0, 0.0, False, ""))

    def on(self, cpus: int) -> LearnerStep:
        """Return the time on ``cpus`` CPUs. A learner that takes turns with sampling has all CPUs in any case."""
        if not self.overlaps or cpus >= self.threads or not self.fewer:
            return self
        power = min(max(1, cpus).bit_length(), len(self.fewer)) - 1  # 2**power threads were measured, at most ``cpus``
        return replace(self, seconds=self.fewer[power], threads=1 << power, fewer=self.fewer[:power])


@dataclass(frozen=True)
class Pinning:
    """The CPUs and the memory that cells get."""

    cpus: str = "compact"  # ``compact``, ``scatter``, ``none``, or a list such as ``0-3,8``
    smt: str = "last"  # when a core's second thread is used: ``last`` (after all cores), ``close`` (at once) or ``off``
    reserve: int = 0  # the number of CPUs without a worker, whole cores as far as possible
    memory: str = "local"

    @property
    def pins(self) -> bool:
        """Whether cells are pinned to CPUs."""
        return self.cpus != "none"

    @property
    def label(self) -> str:
        """The pinning as a user writes it: ``compact[smt=off]``."""
        details: dict[str, OptionValue] = {"smt": self.smt, "reserve": self.reserve, "mem": self.memory}
        return _with_details(self.cpus, details, ("last", 0, "local"))


@dataclass(frozen=True)
class Hosts:
    """The hosts of a run. A cell has one replica on each of its hosts."""

    names: tuple[str, ...] = ()  # empty: all nodes of the Ray cluster, which are looked up for each plan
    counts: tuple[int, ...] = ()  # the numbers of hosts of cells, which use the first hosts; empty: all hosts
    via: str = "ssh"
    address: str = "auto"  # the address of the Ray cluster
    python: str = ""  # the path of each host's Python; by default the path of this Python, or of Ray's
    unlike: bool = False  # whether hosts and their packages may differ

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of hosts of each cell."""
        return self.counts or (len(self.names),)

    @property
    def label(self) -> str:
        """The hosts as a user writes them: ``a,b[via=srun]``."""
        details: dict[str, OptionValue] = {"via": self.via, "count": ",".join(map(str, self.counts))}
        details |= {"address": self.address, "python": self.python, "unlike": self.unlike}
        usual = ("ssh" if self.names else "ray", "", "auto", "", False)
        return _with_details(",".join(self.names) or "ray", details, usual)


def _with_details(first: str, details: Mapping[str, OptionValue], usual: Sequence[OptionValue]) -> str:
    changed = {name: value for (name, value), each in zip(details.items(), usual, strict=True) if value != each}
    return bracketed.written(first, changed)


def parse_envs(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the environments in lists of ``NAME`` and ``NAME[KEY=VALUE,...]``, with sorted keys. Raises ValueError.

    A value that does not read as a bool, an int or a float is text.
    """
    return tuple(
        bracketed.written(name, {key: bracketed.value_of(given[key]) for key in sorted(given)})
        for name, given in _bracketed(texts)
    )


def parse_backends(texts: Sequence[str]) -> tuple[BackendChoice, ...]:
    """Return the backends in lists of ``NAME`` and ``NAME@PYTHON[KEY=VALUE,...]``, each once. Raises ValueError.

    ``module:Class`` names a third party's adapter. ``all-peers`` names every backend that competes. Choices with the
    same meaning are equal: default values are left out, and the other options are in a fixed order.
    """
    found: dict[str, BackendChoice] = {}
    for name, given in _bracketed(texts):
        if name == "all-peers" and not given:
            choices = [BackendChoice(entry.name) for entry in registry.ENTRIES if entry.is_peer]
        else:
            choices = [_choice(name, given)]
        found |= {choice.label: choice for choice in choices}
    return tuple(found.values())


def _bracketed(texts: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the names in lists joined by commas, with their brackets. Raises ValueError."""
    for text in texts:
        for name, bracket in bracketed.split(text):
            if not name:
                raise ValueError(MISSING_NAME)
            yield name, {} if bracket is None else bracketed.pairs(bracket)


def _choice(named: str, given: dict[str, str]) -> BackendChoice:
    name, at, python = (part.strip() for part in named.partition("@"))
    if not name:
        raise ValueError(MISSING_NAME)
    if at and not python:
        raise ValueError(f"a Python is missing after @, such as {name}@venv/bin/python")
    if ":" in name:
        if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
            raise ValueError("a third party's adapter is named module:Class")
        return BackendChoice(name, {key: bracketed.value_of(given[key]) for key in sorted(given)}, python)
    entry = registry.BY_NAME.get(name)
    if entry is None:
        of_class = [one.name for one in registry.ENTRIES if name.casefold() in re.split(r"\W+", one.summary.casefold())]
        near = f" (did you mean {' or '.join(of_class)}?)" if of_class else did_you_mean(name, registry.BY_NAME)
        raise ValueError(f"no such backend{near}; vebench list shows them")
    if python and not entry.builds_environments:
        raise ValueError(f"{name} steps nothing: leave out @{python}")
    values = _values(given, {key: option.parse for key, option in entry.options.items()}, "option")
    changed = {key: value for key, value in values.items() if value != entry.options[key].default}
    return BackendChoice(name, changed, python)


def _values(given: Mapping[str, str], readers: Mapping[str, Callable[[str], Any]], what: str) -> dict[str, Any]:
    """Return the values in brackets, in the order of ``readers``."""
    for key in given:
        if key not in readers:
            it_has = f"it has {', '.join(readers) or 'none'}"
            raise ValueError(f"no {what} {shown(key)}{did_you_mean(key, readers)}; {it_has}")
    found = {}
    for key, read in readers.items():
        if key in given:
            try:
                found[key] = read(given[key])
            except ValueError as error:
                raise ValueError(f"{key} {shown(given[key])}: {error}") from None
    return found


def parse_pin(text: str) -> Pinning:
    """Return the pinning in ``compact``, ``0-3,8[mem=bind]`` or ``scatter[smt=off,reserve=2]``. Raises ValueError."""
    kinds = {"smt": word(*SMT_POLICIES), "reserve": whole(0, MAX_COUNT), "mem": word("local", "bind")}
    cpus, details = _detailed(text, kinds)
    pin = Pinning(cpus, details.get("smt", "last"), details.get("reserve", 0), details.get("mem", "local"))
    if pin.memory != "local" and not pin.pins:
        raise ValueError("without CPUs of its own, a cell has no memory nodes of its own")
    return pin


def parse_hosts(text: str) -> Hosts:
    """Return the hosts of ``a,b[via=srun]``, ``@FILE``, or ``ray`` for a Ray cluster. Raises ValueError."""
    via = word("ssh", "srun", "ray")
    kinds = {"via": via, "count": counts(), "address": Kind(), "python": Kind(), "unlike": switch()}
    written, details = _detailed(text, kinds)
    names = [name for part in written.split(",") for name in _hosts_in(part.strip())]
    numbers = details.pop("count", ())
    if names == ["ray"]:
        return Hosts((), numbers, **{"via": "ray", **details})
    for number, name in enumerate(names):
        # No name that ssh would take for an option, and no character that a shell would interpret.
        if not re.fullmatch(r"(?!-)[A-Za-z0-9_@.:%-]{1,255}", name, re.ASCII) or name in names[:number]:
            raise ValueError(f"{shown(name)} is not the name of a host, or named twice")
    return Hosts(tuple(names), counts(len(names)).read(numbers) if numbers else (), **details)


def _hosts_in(part: str) -> list[str]:
    """Return the name of a host, or the names in ``@FILE``: the first word of each line, as in a list for mpirun."""
    from vebench.files import contents  # loaded here, because it loads msgspec

    if not part.startswith("@"):
        return [part]
    try:
        lines = contents(Path(part[1:])).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(getattr(error, "strerror", None) or str(error)) from None
    words = [line.partition("#")[0].split() for line in lines]
    return [line[0] for line in words if line] or [""]


def _detailed(text: str, kinds: Mapping[str, Kind]) -> tuple[str, dict[str, Any]]:
    """Return the text before the brackets, and the values of the details in them, by name. Raises ValueError."""
    first, bracket, rest = text.strip().partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError("brackets do not match")
    given = bracketed.pairs(rest[:-1], [name for name, kind in kinds.items() if kind.many]) if bracket else {}
    return first.strip(), _values(given, {name: kind.read for name, kind in kinds.items()}, "detail")


def parse_learner(text: str) -> LearnerStep:
    """Return the time in ``4ms``, for each batch, or ``300ms/2048``, for each 2,048 steps. Raises ValueError."""
    times = Kind(lambda given: tuple(seconds().read(one) for one in given.split("+")))
    kinds = {"threads": whole(1, MAX_COUNT), "fewer": times, "error": share(), "overlaps": switch()}
    try:
        first, details = _detailed(text, kinds)
        time, slash, steps = first.partition("/")
        if not time[-1:].isalpha():
            raise ValueError  # noqa: TRY301 - reported below, as other faults are
        return LearnerStep(seconds().read(time), whole(1, 1 << 40).read(steps) if slash else None, **details)
    except ValueError:
        raise ValueError("write a time such as 4ms, for each batch, or 300ms/2048, for each 2,048 steps") from None
