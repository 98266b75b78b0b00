"""Suites: plans that are fixed before anything is measured, so that runs of different machines can be compared.

A suite never changes. Another plan is another version, and submissions carry a digest of the plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan.grammar import BackendChoice
from vebench.plan.kinds import doubled
from vebench.plan.spec import RunSpec, defaults

# All cells have the same number of passes: no cell is measured less because it seemed slow. Passes differ more than
# windows do, so there are many short passes.
_PLAN: Mapping[str, Any] = MappingProxyType(
    {
        **defaults("run"),
        "timeout": 300.0,
        "passes": 6,
        "windows": 6,
        "duration": 0.2,
        "warmup": 0.1,
        "seed": 0,
        "race": False,
    }
)


@dataclass(frozen=True)
class Suite:
    """A fixed plan. Only the backends and the number of CPUs differ between runs."""

    name: str
    version: int
    envs: tuple[str, ...]
    source: str = ""  # where the choice of tasks is explained
    widest: float = 0.25  # the largest half width of a speedup's interval, as a share of the speedup

    @property
    def id(self) -> str:
        """The name with the version: ``atari-5/1``."""
        return f"{self.name}/{self.version}"

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the plan."""
        fixed = {"id": self.id, "envs": self.envs, "workers": "1..CPUs", "widest": self.widest, **_PLAN}
        return sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]

    def spec(self, cpus: int, backends: tuple[BackendChoice, ...] = ()) -> RunSpec:
        """Return the plan for a machine with ``cpus`` usable CPUs. Without ``backends``, it has the default ones."""
        return RunSpec(envs=self.envs, workers=doubled(cpus), backends=backends, suite=self.id, **_PLAN)


_ATARI_5 = Suite(
    "atari-5",
    1,
    ("ALE/BattleZone-v5", "ALE/DoubleDunk-v5", "ALE/NameThisGame-v5", "ALE/Phoenix-v5", "ALE/Qbert-v5"),
    source="https://arxiv.org/abs/2210.02019",
)
_MUJOCO_5 = Suite("mujoco-5", 1, ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5"))
_CLASSIC_3 = Suite("classic-3", 1, ("Acrobot-v1", "CartPole-v1", "Pendulum-v1"))
SUITES = {suite.id: suite for suite in (_ATARI_5, _MUJOCO_5, _CLASSIC_3)}


def suite_named(name: str) -> Suite:
    """Return the newest version of the suite ``name``. Raises UsageError if there is none."""
    newest = {suite.name: suite for suite in SUITES.values()}
    if name not in newest:
        near = did_you_mean(name, newest)
        raise UsageError(f"--suite {shown(name)}: no such suite{near}; there are {', '.join(newest)}")
    return newest[name]
