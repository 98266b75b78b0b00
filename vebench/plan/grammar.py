"""The small languages of the command line: ranges of counts, names with their details in brackets, times and sizes."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vebench.backends import bracketed, registry
from vebench.child import policy
from vebench.errors import UsageError, did_you_mean, shown
from vebench.files import contents
from vebench.plan.spec import (
    MAX_ENVS_PER_WORKER,
    MAX_REPLICAS,
    MAX_SEED,
    MAX_WINDOWS,
    MAX_WORKERS,
    MOST_LEARNER_STEPS,
    MOST_MEMORY,
    PER_NODE,
    BackendChoice,
    Hosts,
    LearnerStep,
    Pinning,
    check_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from vebench.backends.bracketed import OptionValue
    from vebench.backends.entry import BackendEntry
    from vebench.plan.spec import RunSpec

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATIONS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_ALL_PEERS = "all-peers"
_COUNTS_GRAMMAR = "give numbers from 1 on such as 8, 1,2,4, 1..256 (doubles), 1..16:+5 (adds) or 1..81:*3 (multiplies)"
MISSING_ENV = "--env: a name is missing, such as Pong, HalfCheetah or CartPole; vebench list shows more"

_RANGE = re.compile(r"(-?\d+)(?:\.\.(-?\d+)(?::([+*])(-?\d+))?)?", re.ASCII)
_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_REAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def parse_envs(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of environments in ``texts``, each a list of ``NAME`` and ``NAME[KEY=VALUE,...]``.

    Arguments are in the order of their keys, of the first type that fits of bool, int, float and str. Raises UsageError
    if a name is missing or is not valid UTF-8, and for arguments that cannot be read.
    """
    return tuple(
        bracketed.written(name, {key: bracketed.value_of(given[key]) for key in sorted(given)})
        for text in texts
        for name, given in _bracketed("--env", text, MISSING_ENV)
    )


def _bracketed(option: str, text: str, missing: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the names in a list joined by commas, with what their brackets hold. Raises UsageError."""
    _check_text(option, text)
    try:
        for name, bracket in bracketed.split(text):
            if not name:
                raise UsageError(missing)
            yield name, {} if bracket is None else bracketed.pairs(bracket)
    except ValueError as error:
        raise UsageError(f"{option} {shown(text)}: {error}; write NAME[KEY=VALUE,...]") from None


def _check_text(option: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} {shown(text)}: is not UTF-8") from None


def parse_hosts(text: str) -> Hosts:
    """Return the hosts of ``a,b[via=srun]``, ``@FILE`` or, by the name ``ray``, a Ray cluster. Raises UsageError."""
    listed, details = _detailed("--hosts", text, ("via", "count", "address", "python", "unlike"), ("count",))
    names = [name for part in listed.split(",") for name in _hosts(part.strip())]
    all_of_ray = names == ["ray"]
    return Hosts(
        names=() if all_of_ray else tuple(names),
        counts=parse_counts("--hosts: count", [details["count"]]) if "count" in details else (),
        via=details.get("via", "ray" if all_of_ray else "ssh"),
        address=details.get("address", "auto"),
        python=details.get("python", ""),
        unlike=_parse_flag("--hosts: unlike", details.get("unlike", "false")),
    )


def _hosts(part: str) -> list[str]:
    """Return the name of a host, or those in ``@FILE``: the first word of each line, as in a list for mpirun."""
    if not part:
        raise UsageError("--hosts: a name is missing")
    if not part.startswith("@"):
        return [part]
    try:
        lines = contents(Path(part[1:])).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--hosts {shown(part)}: {getattr(error, 'strerror', None) or error}") from None
    words = [line.partition("#")[0].split() for line in lines]
    if not any(words):
        raise UsageError(f"--hosts {shown(part)}: names no host")
    return [line[0] for line in words if line]


def parse_pin(text: str) -> Pinning:
    """Return the pinning in ``compact``, ``0-3,8[mem=bind]`` or ``scatter[smt=off,reserve=2]``. Raises UsageError."""
    cpus, details = _detailed("--pin", text, ("smt", "reserve", "mem"))
    reserve = _parse_whole("--pin: reserve", details.get("reserve", "0"), most=MAX_WORKERS)
    return Pinning(cpus, details.get("smt", "last"), reserve, details.get("mem", "local"))


def _parse_policy(text: str) -> policy.PolicyChoice:
    try:
        return policy.parse_policy(text)
    except ValueError as error:
        raise UsageError(f"--policy {shown(text)}: {error}") from None


def parse_replicas(text: str) -> int | Literal["node"]:
    """Return a number of replicas, or ``node``. Raises UsageError for anything else."""
    return PER_NODE if text == PER_NODE else _parse_whole("--replicas", text, 1, MAX_REPLICAS, f", or {PER_NODE}")


def _parse_whole(option: str, text: str, least: int = 0, most: int = MAX_WORKERS, otherwise: str = "") -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(most)) else -1
    if not least <= number <= most:
        raise UsageError(f"{option} {shown(text)}: must be a whole number from {least} to {most}{otherwise}")
    return number


def _parse_flag(option: str, text: str) -> bool:
    value = bracketed.value_of(text)
    if not isinstance(value, bool):
        raise UsageError(f"{option} {shown(text)}: must be true or false")
    return value


def _detailed(option: str, text: str, keys: Collection[str], lists: Collection[str] = ()) -> tuple[str, dict[str, str]]:
    """Return what stands before the brackets, and the details in them. Values of ``lists`` may have commas."""
    _check_text(option, text)
    first, bracket, rest = text.strip().partition("[")
    if bracket and not rest.endswith("]"):
        raise UsageError(f"{option} {shown(text)}: brackets do not match")
    try:
        details = bracketed.pairs(rest[:-1], lists) if bracket else {}
    except ValueError as error:
        raise UsageError(f"{option} {shown(text)}: {error}") from None
    if unknown := [key for key in details if key not in keys]:
        near = did_you_mean(unknown[0], keys)
        raise UsageError(f"{option} {shown(text)}: no detail {shown(unknown[0])}{near}; it has {', '.join(keys)}")
    return first.strip(), details


def parse_counts(option: str, texts: Sequence[str], most: int = MAX_WORKERS) -> tuple[int, ...]:
    """Return the counts that ``texts`` name, ascending, each once; a range includes both ends.

    Terms are joined by commas: ``8``; ``1..256`` doubles from the first count; ``1..16:+5`` adds; ``1..81:*3``
    multiplies. Raises UsageError for anything else, and for counts below 1 or above ``most``.
    """
    text = ",".join(texts)
    try:
        return tuple(sorted({count for term in text.split(",") for count in _expand(term.strip(), most)}))
    except ValueError as error:
        raise UsageError(f"{option} {shown(text)}: {error}; {_COUNTS_GRAMMAR}") from None


def _expand(term: str, most: int) -> Iterator[int]:
    match = _RANGE.fullmatch(term)
    if match is None:
        raise ValueError(f"{shown(term)} is not a number or a range" if term else "a number is missing")
    first = _count(match[1], most)
    last = first if match[2] is None else _count(match[2], most)
    if last < first:
        raise ValueError(f"{shown(term)} runs backwards")
    adds, step = match[3] == "+", 2 if match[4] is None else _count(match[4], most)
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


def parse_share(option: str, text: str) -> float:
    """Return the share in ``text``: 0.05 for ``5%`` and for ``0.05``. Raises UsageError if it is not in (0, 1)."""
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    if not _REAL.fullmatch(number) or not math.isfinite(float(number)):
        raise UsageError(f"{option} {shown(text)}: write a share such as 5% or 0.05")
    share = float(number) / 100 if percent else float(number)
    if not 0 < share < 1:
        raise UsageError(f"{option} {shown(text)}: must be between 0% and 100%")
    return share


def parse_duration(option: str, text: str) -> float:
    """Return the seconds in ``90``, ``250ms``, ``90s``, ``2m`` or ``1.5h``. Raises UsageError for anything else."""
    number = text.strip().rstrip("umsh")
    unit = text.strip()[len(number) :]
    if not _REAL.fullmatch(number) or not math.isfinite(float(number)) or unit not in _DURATIONS:
        raise UsageError(f"{option} {shown(text)}: write a time such as 250ms, 90s, 2m or 1h")
    return float(number) * _DURATIONS[unit]


def parse_budget(option: str, text: str) -> float:
    """Return the seconds in a text, as ``parse_duration`` does. Raises UsageError also for a time that cannot be."""
    seconds = parse_duration(option, text)
    check_seconds(option, seconds)
    return seconds


def _parse_memory(option: str, text: str) -> int:
    size = text.strip().upper().removesuffix("B").removesuffix("I")
    number, unit = (size[:-1], size[-1:]) if size[-1:] in _SIZES else (size, "")
    if not unit or not _REAL.fullmatch(number) or not 0 < float(number) * _SIZES[unit] <= MOST_MEMORY:
        raise UsageError(f"{option} {shown(text)}: write a size such as 512M or 8G")
    return max(1, int(float(number) * _SIZES[unit]))


def _parse_learner(option: str, text: str) -> LearnerStep:
    time, slash, steps = text.strip().partition("/")
    wanted = "write a time such as 4ms, for each batch, or 300ms/2048, for each 2,048 steps"
    if slash and not (steps.isascii() and steps.isdecimal() and len(steps) <= len(str(MOST_LEARNER_STEPS))):
        raise UsageError(f"{option} {shown(text)}: {wanted}")
    try:
        return LearnerStep(policy.parse_time(time), int(steps) if slash else None)
    except ValueError:
        raise UsageError(f"{option} {shown(text)}: {wanted}") from None


def parse_backends(texts: Sequence[str]) -> tuple[BackendChoice, ...]:
    """Return the backends that ``texts`` name, each a list of ``NAME`` and ``NAME[KEY=VALUE,...]``, each once.

    ``module:Class`` instead of a name is a third party's adapter, ``@PYTHON`` after it the interpreter that it is to
    run in. ``all-peers`` stands for every backend that one could choose. Choices of the same meaning are equal: options
    that have their defaults are left out, and the others are in a fixed order. Raises UsageError for an unknown name
    or option, and for an invalid value.
    """
    found: dict[str, BackendChoice] = {}
    for text in texts:
        missing = f"--backend {shown(text)}: a name is missing; vebench list shows the backends"
        for name, given in _bracketed("--backend", text, missing):
            if name == _ALL_PEERS and not given:
                choices = [BackendChoice(entry.name) for entry in registry.ENTRIES if entry.is_peer]
            else:
                choices = [_choice(text, name, given)]
            found |= {choice.label: choice for choice in choices}
    return tuple(found.values())


def check_names(spec: RunSpec) -> None:
    """Raise UsageError unless the environments and backends of a spec from a file are as the parsers return them."""
    labels = [choice.label for choice in spec.backends]
    if parse_envs(spec.envs) != spec.envs:
        raise UsageError(f"--env {shown(', '.join(spec.envs))}: not as vebench writes it")
    if parse_backends(labels) != spec.backends:
        raise UsageError(f"--backend {shown(', '.join(labels))}: not as vebench writes it")


def _choice(text: str, named: str, given: dict[str, str]) -> BackendChoice:
    name, at, python = (part.strip() for part in named.partition("@"))
    if at and not python:
        raise UsageError(f"--backend {shown(text)}: a Python is missing after @, such as {name}@venv/bin/python")
    if not name:
        raise UsageError(f"--backend {shown(text)}: a name is missing; vebench list shows the backends")
    if ":" in name:
        if not _TARGET.fullmatch(name):
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


# What turns the text of a field of ``RunSpec``, or its list of texts, into the value.
PARSERS: dict[str, Callable[[Any], object]] = {
    "envs": parse_envs,
    "workers": partial(parse_counts, "--workers"),
    "backends": parse_backends,
    "envs_per_worker": partial(parse_counts, "--envs-per-worker", most=MAX_ENVS_PER_WORKER),
    "duration": partial(parse_duration, "duration"),
    "budget": partial(parse_duration, "budget"),
    "warmup": partial(parse_duration, "warmup"),
    "timeout": partial(parse_duration, "timeout"),
    "until": partial(parse_share, "--until"),
    "base": partial(_parse_flag, "base"),
    "interleave": partial(_parse_flag, "interleave"),
    "windows": partial(_parse_whole, "windows", least=1, most=MAX_WINDOWS),
    "seed": partial(_parse_whole, "seed", most=MAX_SEED),
    "pin": parse_pin,
    "replicas": parse_replicas,
    "hosts": parse_hosts,
    "memory": partial(_parse_memory, "memory"),
    "proof": str,
    "policy": _parse_policy,
    "learner": partial(_parse_learner, "--learner"),
}
