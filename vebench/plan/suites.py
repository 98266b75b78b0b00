"""The suites of submissions: fixed plans, so that what is measured was decided before it was measured.

A suite never changes: another plan is another version. Its digest, which submissions carry, shows that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan.kinds import doubled
from vebench.plan.spec import RunSpec, defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.plan.grammar import BackendChoice

# Every cell has the same passes, so that none is measured less because it seemed slow: many short ones, because passes
# differ more than windows do.
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
class FrozenSuite:
    """A plan that is fixed but for the backends and the machine's CPUs: worker counts double from 1 up to these.

    ``widest``: how wide half of a speedup's interval may be, as a share of the speedup. ``source`` is where the tasks
    were chosen.
    """

    name: str
    version: int
    envs: tuple[str, ...]
    source: str = ""
    widest: float = 0.25

    @property
    def id(self) -> str:
        """The name with the version: ``atari-5/1``."""
        return f"{self.name}/{self.version}"

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits, the same for the same plan."""
        fixed = {"id": self.id, "envs": self.envs, "workers": "1..CPUs", "widest": self.widest, **_PLAN}
        return sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]

    def spec(self, cpus: int, backends: tuple[BackendChoice, ...] = ()) -> RunSpec:
        """Return the plan for a machine with so many usable CPUs, and these backends, by default the usual ones."""
        return RunSpec(envs=self.envs, workers=doubled(cpus), backends=backends, suite=self.id, **_PLAN)


# Five games that predict the score over all of them: Aitchison, Sweetser and Hutter, 2023.
_ATARI_5 = FrozenSuite(
    "atari-5",
    1,
    ("ALE/BattleZone-v5", "ALE/DoubleDunk-v5", "ALE/NameThisGame-v5", "ALE/Phoenix-v5", "ALE/Qbert-v5"),
    "https://arxiv.org/abs/2210.02019",
)
_MUJOCO_5 = FrozenSuite("mujoco-5", 1, ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5"))
_CLASSIC_3 = FrozenSuite("classic-3", 1, ("Acrobot-v1", "CartPole-v1", "Pendulum-v1"))
FROZEN = {suite.id: suite for suite in (_ATARI_5, _MUJOCO_5, _CLASSIC_3)}


def suite_named(name: str) -> FrozenSuite:
    """Return the newest version of the suite with this name. Raises UsageError if there is none."""
    newest = {suite.name: suite for suite in FROZEN.values()}
    if name not in newest:
        near = did_you_mean(name, newest)
        raise UsageError(f"--suite {shown(name)}: no such suite{near}; there are {', '.join(newest)}")
    return newest[name]
