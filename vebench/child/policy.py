"""Policies as users write them: ``mlp:64x64[device=cuda]``. The parent reads them, too: standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from vebench.backends import bracketed

TAPE = "tape"
GRAMMAR = (
    "write tape, mlp:64x64 (layers of a perceptron), nature-cnn, transformer:2x128 (LAYERSxWIDTH), sleep:0.5ms "
    "or MODULE:FUNCTION, with details in brackets, such as mlp:64x64[device=cuda]"
)
_MOST_LAYERS, _MOST_WIDTH, _MOST_THREADS, _MOST_SLEEP_S = 256, 1 << 16, 1 << 12, 60.0
_HEAD = 8  # the width of a transformer is a multiple of it
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m)", re.ASCII)
_WIDTHS = re.compile(r"\d{1,6}(x\d{1,6})*", re.ASCII)
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

Kind = Literal["tape", "mlp", "nature-cnn", "transformer", "sleep", "function"]


@dataclass(frozen=True)
class PolicyChoice:
    """A policy, and how it computes."""

    kind: Kind = "tape"
    sizes: tuple[int, ...] = ()  # of mlp: the widths of its hidden layers; of transformer: layers and width
    pause: str = ""  # of sleep, such as ``0.5ms``
    target: str = ""  # of a user's own: ``module:function``
    # Of networks, by torch:
    device: str = "cpu"
    precision: str = "fp32"
    compile: bool = False
    threads: int = 1
    cpus: str = ""  # a list of CPUs that no worker gets; if it is empty, the policy computes on the cell's

    @property
    def module(self) -> str:
        """The module of a user's function, empty for other policies."""
        return self.target.partition(":")[0]

    @property
    def is_network(self) -> bool:
        """Whether it is one of vebench's networks, which need torch."""
        return self.kind in ("mlp", "nature-cnn", "transformer")

    @property
    def name(self) -> str:
        """The policy without its details: ``mlp:64x64``."""
        rest = self.pause or "x".join(map(str, self.sizes))
        return self.target or (f"{self.kind}:{rest}" if rest else self.kind)

    @property
    def seconds(self) -> float:
        """How long ``sleep`` takes."""
        return parse_time(self.pause)

    @property
    def label(self) -> str:
        """The policy as a user writes it: ``mlp:64x64[device=cuda]``."""
        details = {key: getattr(self, key) for key in _DETAILS}
        return bracketed.written(
            self.name, {key: value for key, value in details.items() if value != getattr(TAPED, key)}
        )

    @property
    def in_words(self) -> str:
        """The policy and how it computes; empty for a tape."""
        if self.kind == TAPE:
            return ""
        parts = [self.name]
        if self.is_network:
            parts.append(f"on {self.device}")
            if self.device == "cpu":
                parts.append(f"{self.threads} torch thread" + ("" if self.threads == 1 else "s"))
            parts.append(self.precision)
            if self.compile:
                parts.append("compiled")
        if self.cpus:
            parts.append(f"on CPU {self.cpus}")
        return ", ".join(parts)


TAPED = PolicyChoice()
# The check of each detail, and what is right. Whether the CPUs exist is checked where cells are placed.
_DETAILS: dict[str, tuple[Callable[[Any], object], str]] = {
    "device": (lambda value: re.fullmatch(r"cpu|cuda(:\d{1,3})?", str(value), re.ASCII), "cpu, cuda or cuda:N"),
    "precision": (lambda value: value in ("fp32", "bf16"), "one of fp32, bf16"),
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
    values: dict[str, Any] = {}
    for key, given in bracketed.pairs(rest[:-1], lists=("cpus",)).items() if bracket else ():
        if key not in _DETAILS:
            raise ValueError(f"no detail {key}; known: {', '.join(_DETAILS)}")
        if key == "cpus" and policy.kind == TAPE:
            raise ValueError("cpus applies only to policies that compute, such as mlp:64x64")
        if key != "cpus" and not policy.is_network:
            raise ValueError(f"{key} applies only to networks, such as mlp:64x64")
        fits, right = _DETAILS[key]
        values[key] = given if key == "cpus" else bracketed.value_of(given)
        if not fits(values[key]):
            raise ValueError(f"{key} must be {right}")
    return replace(policy, **values)


def _named(text: str) -> PolicyChoice:
    kind, _, rest = text.partition(":")
    sizes = tuple(map(int, rest.split("x"))) if _WIDTHS.fullmatch(rest) else ()
    match kind:
        case "tape" | "nature-cnn" if text == kind:
            return PolicyChoice(kind)
        case "sleep":
            if parse_time(rest) > _MOST_SLEEP_S:
                raise ValueError(f"at most {_MOST_SLEEP_S:g}s")
            return PolicyChoice("sleep", pause=rest)
        case "mlp" if sizes:
            if len(sizes) > _MOST_LAYERS or min(sizes) < 1 or max(sizes) > _MOST_WIDTH:
                raise ValueError(f"at most {_MOST_LAYERS} layers, each from 1 to {_MOST_WIDTH} wide")
            return PolicyChoice("mlp", sizes)
        case "transformer" if sizes:
            layers, width = sizes if len(sizes) == 2 else (0, 0)  # noqa: PLR2004 - layers and width
            if not 1 <= layers <= _MOST_LAYERS or not 1 <= width <= _MOST_WIDTH or width % _HEAD:
                raise ValueError(
                    f"transformer:LAYERSxWIDTH takes 1 to {_MOST_LAYERS} layers, and a width divisible by {_HEAD}"
                )
            return PolicyChoice("transformer", sizes)
        case _ if kind not in ("mlp", "transformer") and _FUNCTION.fullmatch(text):
            return PolicyChoice("function", target=text)
    raise ValueError(GRAMMAR)


def parse_time(text: str) -> float:
    """Return the seconds in ``4ms``, ``250us`` or ``1.5s``. Raises ValueError for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("write a time with its unit, such as 0.5ms, 250us or 1s")
    return float(match[1]) * _UNITS[match[2]]
