"""With what our classes have shown the same bytes as Gymnasium's: versions of packages, and the sources themselves.

``python tools/fast_sources.py`` prints the sources' digests for the packages that are installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# By a package's name: as many places of its version as decide (``packages``). OpenCV is not here: our own class for
# games calls it as Gymnasium's wrapper does, and uses pictures that are compiled only if they are the same as those of
# the OpenCV that is installed, which is looked at in every process.
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "ale-py": ("0.12.1",),
    "gymnasium": ("1.4.0",),
    "mujoco": ("3.6.0", "3.11.0"),
    "numpy": ("2",),
}

# SHA-256 of the files that our classes stand for, in any of these versions.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "ale_py/env.py": ("eca5ad0607935fedfd29b21591240618d69cdd9242303a6c48d6aaf58d668630",),
    "gymnasium/core.py": ("2a7a1bef059c8be021a53540bff4ea6393a853e0205c5cce28f8ba24bad304eb",),
    "gymnasium/envs/mujoco/ant_v5.py": ("03be9596a1fbc17157b6969e3ee48291600ff689c27fa02e178de3976eedddf9",),
    "gymnasium/envs/mujoco/half_cheetah_v5.py": ("c6520e364985f4715d42016284f694f7ba601acedbfb0221a43888ac49affcf3",),
    "gymnasium/envs/mujoco/hopper_v5.py": ("daa2951970f5f55853c7b0ec60b47e2c1f4e4338548f2df1b2465c6ecfdc4e9e",),
    "gymnasium/envs/mujoco/humanoid_v5.py": ("53792f8fd48efbeeee652ff6b853a608fe1b6770125805bf1e2e3bcf69fbc431",),
    "gymnasium/envs/mujoco/humanoidstandup_v5.py": (
        "ff0524040964ebd69b0191d7fb045fffe655b7306a57251dd7023220e440875c",
    ),
    "gymnasium/envs/mujoco/inverted_double_pendulum_v5.py": (
        "a4ce6cadb4daf557b0181e0dc3b19ea0e37cfafc35fb8bf493eb2066f60f4b6b",
    ),
    "gymnasium/envs/mujoco/inverted_pendulum_v5.py": (
        "860e8436475689a42ae10003638e5320668d32d39a9bedc502957b8e7b3aac48",
    ),
    "gymnasium/envs/mujoco/mujoco_env.py": ("77e8205c380d8e0d7dc68f6ad136cf192f07c061cd3f00eeebfac8414c71bc49",),
    "gymnasium/envs/mujoco/pusher_v5.py": ("e51893fd93ab0e7275e6eabf7cd286fdf26ca4ca6d243e851ee9cc147e783cc6",),
    "gymnasium/envs/mujoco/reacher_v5.py": ("be2f75d48b6b19e61757ec98c42a9173c563751c5f30c6ed4d17325a73d368ca",),
    "gymnasium/envs/mujoco/swimmer_v5.py": ("5bdb513ea955bc2e9b4d2fdc881f00dbc1b97f5c7c557b6675cdf71299d9736e",),
    "gymnasium/envs/mujoco/walker2d_v5.py": ("10219f0e6b5208d6f5b6d7fd1dce2606580d847cf94abc3e6c53588ba4c90934",),
    "gymnasium/envs/registration.py": ("6913c0a297ba30c2939a8934ec757101c2ae09ccb278a82b658cd5b8f68c4fdf",),
    "gymnasium/utils/seeding.py": ("eb2a223b92604b7d1df2a859338e4a175c60f3fb11b87f8f316f306f1b97de53",),
    "gymnasium/wrappers/atari_preprocessing.py": ("9d37dc8b68297130bf2009741db5a54d6a9f46ea6e0745efe78a0bc39ca1c610",),
    "gymnasium/wrappers/common.py": ("ef31d8b3c302ba123d353980cdb09b2c85116d6a0b872da168f67c78bf80e4a8",),
    "gymnasium/wrappers/stateful_observation.py": ("34b2cf186aed39d34dd73669e2a0f0dbf89dbd7d573c12c0fb527e86956d8867",),
    "gymnasium/wrappers/transform_reward.py": ("5cd6e32e545d7f75089578ccd45c0ac92be212065c7defbbe0a3d51f5141645b",),
}
