"""Training libraries and algorithms: which backends a library takes, and how an algorithm learns. Standard library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vebench.backends.entry import BackendEntry, Built
from vebench.backends.environments.suites import SUITES


@dataclass(frozen=True)
class Algorithm:
    """A training algorithm, with settings that are usual in CleanRL and Stable-Baselines3."""

    title: str
    horizon: int  # the steps of each environment between two phases of learning
    minibatch: int  # the rows of one gradient step
    gradient_steps: int  # for each ``env_steps`` steps of environments
    env_steps: int
    trained: int = 0  # the networks that a gradient step trains; 0: PPO's policy and value
    fixed: int = 0  # the networks that only rate rows in a gradient step
    widths: tuple[int, ...] = (64, 64)  # the hidden layers of its usual perceptron
    discrete: bool | None = None  # whether it needs discrete actions, or continuous ones; None: it takes both
    overlaps: bool = False  # it samples and learns at the same time, and takes rows in any order


ALGORITHMS: Mapping[str, Algorithm] = {
    "ppo": Algorithm("PPO", 128, 64, 10, 64),
    "a2c": Algorithm("A2C", 5, 80, 1, 80),  # 16 environments
    "impala": Algorithm("IMPALA", 20, 640, 1, 640, overlaps=True),
    "dqn": Algorithm("DQN", 4, 32, 1, 4, trained=1, fixed=1, discrete=True),
    # The policy, two critics, and the gradient of the policy through the critics. The policy and two targets rate rows.
    "sac": Algorithm("SAC", 1, 256, 1, 1, trained=4, fixed=3, widths=(256, 256), discrete=False),
}
_OF_PICTURES = {"ppo": replace(ALGORITHMS["ppo"], minibatch=256, gradient_steps=4, env_steps=256)}


@dataclass(frozen=True)
class TrainingLibrary:
    """A library that trains. Its lines of Python have the fields of ``Training.script`` in braces."""

    title: str
    interface: str  # the environments that it takes, in words
    # Backends that it takes, each with an import and a line. A line with ``{n}`` makes the environments. Other lines
    # convert ``envs``. Both are empty if the library takes ``envs`` unchanged.
    takes: Mapping[str, tuple[str, str]]
    settings: Mapping[str, str]  # the algorithms that it has, each with arguments
    imports: tuple[str, ...]
    lines: tuple[str, ...]  # these train on ``envs``


_IN_STEP = ("gym-sync", "gym-async", "shm-sync", "fast-sync")  # with Gymnasium's interface, and whole batches
_SB3_ENVS = "from stable_baselines3.common.vec_env import "
_SB3_OURS = "from vebench.backends.shared_memory import StableBaselinesVecEnv"
_ADAPTED = (_SB3_OURS, "envs = StableBaselinesVecEnv(envs)")
_DUMMY = (f"{_SB3_ENVS}DummyVecEnv", "envs = DummyVecEnv([make_env] * {n})")
_WRAPPER = "from torchrl.envs import GymWrapper"
_INTENSITY = "training_intensity={gradient_steps} * {minibatch} / {env_steps}"
_PER_STEP = "train_freq={horizon}, gradient_steps={n}, buffer_size=100_000"
LIBRARIES: Mapping[str, TrainingLibrary] = {
    "sb3": TrainingLibrary(
        "Stable-Baselines3",
        "its own VecEnv",
        {
            "for-loop": _DUMMY,
            "sb3-dummy": _DUMMY,
            "sb3-subproc": (f"{_SB3_ENVS}SubprocVecEnv", "envs = SubprocVecEnv([make_env] * {n})"),
            "shm-sync": _ADAPTED,
            "fast-sync": _ADAPTED,
        },
        {
            "ppo": "n_steps={horizon}, batch_size={minibatch}, n_epochs={gradient_steps}",
            "a2c": "n_steps={horizon}",
            "dqn": _PER_STEP,
            "sac": _PER_STEP,
        },
        ("from stable_baselines3 import {title}",),
        (
            "model = {title}(",
            '    "{policy}Policy",{note}',
            "    envs,",
            "    {settings},",
            ")",
            "model.learn(1_000_000)",
        ),
    ),
    "cleanrl": TrainingLibrary(
        "CleanRL",
        "Gymnasium's interface with whole batches",
        dict.fromkeys((*_IN_STEP, "envpool-sync", "ale-vector-sync"), ("", "")),
        dict.fromkeys(("ppo", "dqn", "sac"), ""),
        (),
        ("observations, infos = envs.reset()", "# here begins the loop of CleanRL's {title}"),
    ),
    "torchrl": TrainingLibrary(
        "TorchRL",
        "its ParallelEnv and Gymnasium's interface with resets in the same step",
        {
            "torchrl-parallel": (f"{_WRAPPER}, ParallelEnv", "envs = ParallelEnv({n}, lambda: GymWrapper(make_env()))"),
            **dict.fromkeys(_IN_STEP, (_WRAPPER, "envs = GymWrapper(envs)")),
        },
        dict.fromkeys(ALGORITHMS, "{horizon} * {n}"),
        ("from torchrl.collectors import Collector",),
        (
            "# your policy takes the place of None, which acts at random",
            "collector = Collector(envs, None, frames_per_batch={settings})",
            "batch = next(iter(collector))",
            "collector.shutdown()  # after the last batch",
        ),
    ),
    "tianshou": TrainingLibrary(
        "tianshou",
        "its own vector environments",
        {
            f"tianshou-{name.lower()}": (
                f"from tianshou.env import {name}VectorEnv",
                f"envs = {name}VectorEnv([make_env] * {{n}})",
            )
            for name in ("Dummy", "Subproc", "Shmem", "Ray")
        },
        dict.fromkeys(("ppo", "a2c", "dqn", "sac"), ""),
        ("from tianshou.data import VectorReplayBuffer",),
        ("buffer = VectorReplayBuffer(20_000, {n})", "# next: tianshou.data.Collector(algorithm, envs, buffer)"),
    ),
    "rllib": TrainingLibrary(
        "RLlib",
        "Gymnasium's vector environments",
        {
            f"gym-{mode}": ("", f'envs = dict(num_envs_per_env_runner={{n}}, gym_env_vectorize_mode="{mode}")')
            for mode in ("sync", "async")
        },
        {
            "ppo": "train_batch_size={horizon} * {n}, minibatch_size={minibatch}, num_epochs={gradient_steps}",
            "impala": "train_batch_size={minibatch}",
            **dict.fromkeys(("dqn", "sac"), f"train_batch_size={{minibatch}}, {_INTENSITY}"),
        },
        ("from ray.rllib.algorithms.{algorithm} import {title}Config", "from ray.tune.registry import register_env"),
        (
            'register_env("made", lambda _: make_env())',
            'config = {title}Config().environment("made")',
            "config.env_runners(num_env_runners={runners}, **envs)",
            "config.training(",
            "    {settings},",
            ")",
            "algorithm = config.build_algo()",
            "algorithm.train()",
        ),
    ),
}


@dataclass(frozen=True)
class Training:
    """The program that trains on a backend: an algorithm, None for any, in a library, None for any."""

    algorithm: str | None = None
    library: str | None = None
    pictures: bool | None = None  # whether the network sees pictures; None: as is usual for the task
    threads: int = 0  # the number of torch's threads; 0 if unknown

    @property
    def method(self) -> Algorithm:
        """The algorithm, by default PPO."""
        name = self.algorithm or "ppo"
        return _OF_PICTURES[name] if self.pictures and name in _OF_PICTURES else ALGORITHMS[name]

    def refusal(self, entry: BackendEntry) -> str:
        """Return why the program cannot use a backend; empty if it can."""
        library = LIBRARIES.get(self.library or "")
        if library is not None and entry.name not in library.takes:
            return f"{library.title} takes {library.interface} only"
        if entry.asynchronous and self.algorithm and not self.method.overlaps:
            return f"{self.method.title} needs whole batches in order"
        return ""

    def script(self, entry: BackendEntry, built: Built) -> tuple[str, ...]:
        """Return lines of Python that make the environments and begin to train. Empty if unknown or refused."""
        if self.refusal(entry):
            return ()
        if self.pictures is None:
            return replace(self, pictures=built.task.suite == "atari").script(entry, built)
        imports = ["import torch"] if self.threads else []
        lines = [f"torch.set_num_threads({self.threads})"] if self.threads else []
        built = replace(built, of_library=self.library is not None)
        library = LIBRARIES.get(self.library or "")
        own = ""  # the line of the library
        if library is not None:
            algorithm, (needed, own) = self.algorithm or "ppo", library.takes[entry.name]
            fields: dict[str, object] = {**vars(self.method), "n": built.num_envs, "algorithm": algorithm}
            fields |= {"policy": "Cnn" if self.pictures else "Mlp", "runners": int(self.method.overlaps)}
            known = SUITES[built.task.suite].ours
            fields["note"] = "" if known else "  # observations that are dicts: MultiInputPolicy"
            fields["settings"] = library.settings[algorithm].format(**fields)
            imports += [line.format(**fields) for line in (*library.imports, needed) if line]
            lines += [line.format(**fields) for line in (own, *library.lines) if line]
        if "{n}" in own:
            script = built.script((), built.guarded(lines))
        else:
            script = entry.lines(replace(built, then=tuple(lines)))
        return (*imports, *script) if script else ()
