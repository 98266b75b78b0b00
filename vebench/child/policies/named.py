"""Policies by their names: ``tape``, ``mlp:64x64``, ``sleep:0.5ms``.

The parent reads them, too: standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TAPE = "tape"
PRECISIONS = ("fp32", "bf16")
DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?", re.ASCII)
MOST_LAYERS, MOST_WIDTH, MOST_THREADS = 256, 1 << 16, 1 << 12
MOST_SLEEP_S = 60.0
GRAMMAR = (
    "write tape, mlp:64x64 (layers of a perceptron), nature-cnn, transformer:2x128 (LAYERSxWIDTH), sleep:0.5ms "
    "or MODULE:FUNCTION"
)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)", re.ASCII)
_WIDTHS = re.compile(r"\d{1,6}(x\d{1,6})*", re.ASCII)
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

Kind = Literal["tape", "mlp", "nature-cnn", "transformer", "sleep", "function"]


@dataclass(frozen=True)
class PolicyName:
    """What a policy's name means.

    ``sizes``: the widths of the hidden layers of ``mlp``; the layers and their width of ``transformer``. ``seconds``:
    how long ``sleep`` takes. ``target``: ``module:function`` of a user's own.
    """

    kind: Kind
    sizes: tuple[int, ...] = ()
    seconds: float = 0.0
    target: str = ""

    @property
    def module(self) -> str:
        """The module of a user's function, empty for other policies."""
        return self.target.partition(":")[0]


def is_network(text: str) -> bool:
    """Return whether the name is that of a network of ours, which needs torch."""
    return text.partition(":")[0] in ("mlp", "nature-cnn", "transformer")


def parse_policy(text: str) -> PolicyName:
    """Return what the name of a policy means. Raises ValueError, which says what is wrong or how to write one."""
    kind, _, rest = text.partition(":")
    if text == TAPE:
        return PolicyName("tape")
    if text == "nature-cnn":
        return PolicyName("nature-cnn")
    if kind == "sleep":
        seconds = parse_time(rest)
        if seconds > MOST_SLEEP_S:
            raise ValueError(f"at most {MOST_SLEEP_S:g}s")
        return PolicyName("sleep", seconds=seconds)
    if kind in ("mlp", "transformer"):
        if not _WIDTHS.fullmatch(rest):
            raise ValueError(GRAMMAR)
        return _network(kind, tuple(map(int, rest.split("x"))))
    if _FUNCTION.fullmatch(text):
        return PolicyName("function", target=text)
    raise ValueError(GRAMMAR)


def _network(kind: str, sizes: tuple[int, ...]) -> PolicyName:
    if kind == "mlp":
        if len(sizes) > MOST_LAYERS or not 1 <= min(sizes) <= max(sizes) <= MOST_WIDTH:
            raise ValueError(f"at most {MOST_LAYERS} layers, each from 1 to {MOST_WIDTH} wide")
        return PolicyName("mlp", sizes)
    if len(sizes) != 2 or not 1 <= sizes[0] <= MOST_LAYERS or not 8 <= sizes[1] <= MOST_WIDTH or sizes[1] % 8:  # noqa: PLR2004 - layers and width
        raise ValueError(f"transformer:LAYERSxWIDTH has 1 to {MOST_LAYERS} layers, and a width that 8 divides")
    return PolicyName("transformer", sizes)


def parse_time(text: str) -> float:
    """Return the seconds in ``4ms``, ``250us`` or ``1.5s``. Raises ValueError for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("write a time with its unit, such as 0.5ms, 250us or 1s")
    return float(match[1]) * _UNITS[match[2]]
