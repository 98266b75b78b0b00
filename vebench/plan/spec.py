"""What was asked for, parsed once into immutable values. Nothing past the command line sees its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.interface import OptionValue


@dataclass(frozen=True)
class BackendChoice:
    """A backend by name (or a third party's by ``module:Class``) and the options that were given to it."""

    name: str
    options: dict[str, OptionValue] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The choice as a user writes it: ``envpool-async[ratio=2]``."""
        if not self.options:
            return self.name
        return f"{self.name}[{','.join(f'{key}={value}' for key, value in self.options.items())}]"


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides what a run measures. Times are in seconds; no ``backends`` means all that can run."""

    envs: tuple[str, ...]
    workers: tuple[int, ...]
    backends: tuple[BackendChoice, ...] = ()
    envs_per_worker: int = 1
    duration: float = 1.0
    rounds: int = 6
    warmup: float = 1.0
    repeats: int = 1
    seed: int = 0
    pin: str = "compact"
    timeout: float = 300.0
