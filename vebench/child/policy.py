"""Policies as users write them: ``mlp:64x64[device=cuda]``. The parent reads them, too: standard library only."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from vebench.backends import bracketed

if TYPE_CHECKING:
    from collections.abc import Callable

TAPE = "tape"
_PRECISIONS = ("fp32", "bf16")
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?", re.ASCII)
_MOST_LAYERS, _MOST_WIDTH, _MOST_THREADS = 256, 1 << 16, 1 << 12
_MOST_SLEEP_S = 60.0
GRAMMAR = (
    "write tape, mlp:64x64 (layers of a perceptron), nature-cnn, transformer:2x128 (LAYERSxWIDTH), sleep:0.5ms "
    "or MODULE:FUNCTION, with details in brackets, such as mlp:64x64[device=cuda]"
)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m)", re.ASCII)
_WIDTHS = re.compile(r"\d{1,6}(x\d{1,6})*", re.ASCII)
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

Kind = Literal["tape", "mlp", "nature-cnn", "transformer", "sleep", "function"]
_NETWORKS: tuple[Kind, ...] = ("mlp", "nature-cnn", "transformer")


@dataclass(frozen=True)
class PolicyChoice:
    """What acts, and how it computes.

    ``sizes``: the widths of the hidden layers of ``mlp``; the layers and their width of ``transformer``. ``pause``:
    how long ``sleep`` takes, such as ``0.5ms``. ``target``: ``module:function`` of a user's own. ``device``,
    ``precision``, ``compile`` (by torch) and ``threads`` (of torch) are for networks. ``cpus`` is a list of CPUs that
    no worker gets; if it is empty, the policy computes on those of the cell.
    """

    kind: Kind = "tape"
    sizes: tuple[int, ...] = ()
    pause: str = ""
    target: str = ""
    device: str = "cpu"
    precision: str = "fp32"
    compile: bool = False
    threads: int = 1
    cpus: str = ""

    @property
    def module(self) -> str:
        """The module of a user's function, empty for other policies."""
        return self.target.partition(":")[0]

    @property
    def is_network(self) -> bool:
        """Whether it is a network of ours, which needs torch."""
        return self.kind in _NETWORKS

    @property
    def name(self) -> str:
        """The policy without its details: ``mlp:64x64``."""
        if self.kind == "function":
            return self.target
        rest = self.pause or "x".join(map(str, self.sizes))
        return f"{self.kind}:{rest}" if rest else self.kind

    @property
    def seconds(self) -> float:
        """How long ``sleep`` takes."""
        return parse_time(self.pause)

    @property
    def label(self) -> str:
        """The policy as a user writes it: ``mlp:64x64[device=cuda]``."""
        usual = asdict(TAPED)
        details = {key: getattr(self, key) for key in _DETAILS}
        return bracketed.written(self.name, {key: value for key, value in details.items() if value != usual[key]})

    @property
    def in_words(self) -> str:
        """The policy and how it computes; empty for a tape."""
        if self.kind == TAPE:
            return ""
        parts = [self.name]
        if self.is_network:
            threads = f"{self.threads} torch thread{'s' * (self.threads != 1)}"
            parts += [f"on {self.device}", *([threads] if self.device == "cpu" else []), self.precision]
            parts += ["compiled"] * self.compile
        if self.cpus:
            parts.append(f"on CPU {self.cpus}")
        return ", ".join(parts)


TAPED = PolicyChoice()
# What each detail has to be. Whether there are such CPUs is known where cells are placed.
_DETAILS: dict[str, tuple[Callable[[Any], object], str]] = {
    "device": (lambda value: _DEVICE.fullmatch(str(value)), "cpu, cuda or cuda:N"),
    "precision": (lambda value: value in _PRECISIONS, f"one of {', '.join(_PRECISIONS)}"),
    "compile": (lambda value: isinstance(value, bool), "true or false"),
    "threads": (lambda value: type(value) is int and 1 <= value <= _MOST_THREADS, f"from 1 to {_MOST_THREADS}"),
    "cpus": (str, "a list of CPUs"),
}


def parse_policy(text: str) -> PolicyChoice:
    """Return the policy that a text describes. Raises ValueError, which says what is wrong or how to write one."""
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError("brackets do not match")
    policy = _named(name.strip())
    details = bracketed.pairs(rest[:-1], lists=("cpus",)) if bracket else {}
    values: dict[str, Any] = {}
    for key, given in details.items():
        if key not in _DETAILS:
            raise ValueError(f"no detail {key}; known: {', '.join(_DETAILS)}")
        if key == "cpus" and policy.kind == TAPE:
            raise ValueError("cpus applies only to policies that compute, such as mlp:64x64")
        if key != "cpus" and not policy.is_network:
            raise ValueError(f"{key} applies only to networks, such as mlp:64x64")
        fits, what = _DETAILS[key]
        values[key] = given if key == "cpus" else bracketed.value_of(given)
        if not fits(values[key]):
            raise ValueError(f"{key} must be {what}")
    return replace(policy, **values)


def _named(text: str) -> PolicyChoice:
    kind, _, rest = text.partition(":")
    if text == TAPE:
        return PolicyChoice("tape")
    if text == "nature-cnn":
        return PolicyChoice("nature-cnn")
    if kind == "sleep":
        if parse_time(rest) > _MOST_SLEEP_S:
            raise ValueError(f"at most {_MOST_SLEEP_S:g}s")
        return PolicyChoice("sleep", pause=rest)
    if kind in ("mlp", "transformer"):
        if not _WIDTHS.fullmatch(rest):
            raise ValueError(GRAMMAR)
        return _network(kind, tuple(map(int, rest.split("x"))))
    if _FUNCTION.fullmatch(text):
        return PolicyChoice("function", target=text)
    raise ValueError(GRAMMAR)


def _network(kind: str, sizes: tuple[int, ...]) -> PolicyChoice:
    if kind == "mlp":
        if len(sizes) > _MOST_LAYERS or not 1 <= min(sizes) <= max(sizes) <= _MOST_WIDTH:
            raise ValueError(f"at most {_MOST_LAYERS} layers, each from 1 to {_MOST_WIDTH} wide")
        return PolicyChoice("mlp", sizes)
    if len(sizes) != 2 or not 1 <= sizes[0] <= _MOST_LAYERS or not 8 <= sizes[1] <= _MOST_WIDTH or sizes[1] % 8:  # noqa: PLR2004 - layers and width
        raise ValueError(f"transformer:LAYERSxWIDTH takes 1 to {_MOST_LAYERS} layers, and a width divisible by 8")
    return PolicyChoice("transformer", sizes)


def parse_time(text: str) -> float:
    """Return the seconds in ``4ms``, ``250us`` or ``1.5s``. Raises ValueError for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("write a time with its unit, such as 0.5ms, 250us or 1s")
    return float(match[1]) * _UNITS[match[2]]
