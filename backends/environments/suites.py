"""The table of suites: kinds of task, and the facts that all tasks of a kind share.

A new suite takes an entry here and a function that makes one environment. The parent and every worker read this table
before any package is loaded: standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from keyword import iskeyword
from operator import attrgetter
from typing import Any, Literal

from vebench.backends import bracketed, packages
from vebench.backends.bracketed import OptionValue
from vebench.backends.interface import Task
from vebench.backends.packages import GYMNASIUM, MUJOCO, Package

KIB = 1 << 10
MIB = 1 << 20
BURST = 64  # agent steps that a bare simulator makes at a time
# Settings of every backend's Atari environments: see ``simulators``.
FRAME_LIMIT = 108_000
SCREEN_SIZE = 84
STACK = 4
_OF_ANY = frozenset({"id", "disable_env_checker"})  # arguments of ``gymnasium.make`` that vebench sets itself
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_HARMLESS = re.compile(r"[\w./:-]+", re.ASCII)
# Games whose action 0 presses a button: AtariPreprocessing makes no no-ops there.
_WITHOUT_NOOP = frozenset({"ALE/Backgammon-v5", "ALE/VideoCheckers-v5"})


@dataclass(frozen=True)
class Recipe:
    """Lines of Python: ``imports``, then a ``function`` named ``make_env`` that returns an environment."""

    imports: tuple[str, ...]
    function: tuple[str, ...]


def quoted(text: str) -> str:
    """Return a text from outside as a Python literal in ASCII, with all other characters escaped."""
    return f'"{text}"' if _HARMLESS.fullmatch(text) else ascii(text)


def literal(value: OptionValue) -> str:
    """Return a value as a Python literal in ASCII."""
    return quoted(value) if isinstance(value, str) else ascii(value)


def full_id(task: Task) -> str:
    """Return the id with which ``gymnasium.make`` makes a task, and before it the module to import, if there is one."""
    return task.name if task.module is None else f"{task.module}:{task.name}"


def call(target: str, arguments: Sequence[str], indent: str = "") -> list[str]:
    """Return the lines of a call: one line if it fits in the narrowest terminal, otherwise a line for each argument."""
    whole = f"{indent}{target}({', '.join(arguments)})"
    if len(whole) <= 60:  # noqa: PLR2004 - a wrapped line cannot always be pasted
        return [whole]
    return [f"{indent}{target}(", *(f"{indent}    {argument}," for argument in arguments), f"{indent})"]


def arguments_of(task: Task) -> tuple[str, ...]:
    """Return a task's arguments as Python."""
    return tuple(
        f"{key}={literal(value)}" if key.isascii() and not iskeyword(key) else f"**{{{key!a}: {literal(value)}}}"
        for key, value in task.arguments.items()
    )


def _registered_recipe(task: Task) -> Recipe:
    """Return the recipe of an environment that Gymnasium or the suite's plugin registers."""
    suite = SUITES[task.suite]
    named = task if suite.plugin is None else replace(task, module=suite.plugin)
    arguments = (quoted(full_id(named)), *arguments_of(task), "disable_env_checker=True")
    imports: tuple[str, ...] = ("import gymnasium",)
    lines = call("return gymnasium.make", arguments, "    ")
    if suite.observed:
        imports += ("from gymnasium.wrappers import FilterObservation",)
        kept = ", ".join(map(quoted, suite.observed))
        lines = call("env = gymnasium.make", arguments, "    ")
        lines += ["    # other parts are text", *call("return FilterObservation", ("env", f"[{kept}]"), "    ")]
    return Recipe(imports, ("def make_env():", *lines))


def called(task: Task) -> str:
    """Return a user's callable as a script names it, empty if the task's name is not ``module:name``."""
    module, _, name = task.name.partition(":")
    return f"{module}.{name}" if _DOTTED.fullmatch(module) and _DOTTED.fullmatch(name) else ""


def _called_recipe(task: Task) -> Recipe:
    """Return the recipe of an environment of a user's own callable, or of one copy of its batch.

    It has no lines if the task's name is not ``module:name``.
    """
    target, arguments = called(task), arguments_of(task)
    if not target:
        return Recipe((), ())
    imports: tuple[str, ...] = (f"import {task.name.partition(':')[0]}",)
    lines = call(f"return {target}", arguments, "    ")
    if SUITES[task.suite].make_vec:
        imports += ("from vebench.backends.batched.vectors import Single",)
        made = f"lambda _: {target}({', '.join(('num_envs=1', *arguments))})"
        lines = call("return Single", (made,), "    ")
    return Recipe(imports, ("def make_env():", *lines))


def _atari_recipe(task: Task) -> Recipe:
    """Return the recipe of an Atari environment, which leaves the gaps open that ``simulators.AtariScreen`` closes."""
    settings = ", noop_max=0" if task.name in _WITHOUT_NOOP else ""
    if task.frame_skip != _ATARI_FRAME_SKIP:
        settings += f", frame_skip={task.frame_skip}"
    fixed = ("frameskip=1", "repeat_action_probability=0", "disable_env_checker=True")
    return Recipe(
        (
            "import ale_py",
            "import cv2",
            "import gymnasium",
            "from gymnasium.wrappers import AtariPreprocessing",
            "from gymnasium.wrappers import FrameStackObservation",
        ),
        (
            "gymnasium.register_envs(ale_py)",
            "def make_env():",
            "    cv2.setNumThreads(1)  # not one thread for each CPU",
            *call("env = gymnasium.make", (quoted(task.name), *fixed, *arguments_of(task)), "    "),
            *call("return FrameStackObservation", (f"AtariPreprocessing(env{settings})", "4"), "    "),
        ),
    )


def fast_settings(task: Task) -> dict[str, OptionValue]:
    """Return the settings, except defaults, with which ``fast.make_vec`` makes the same task as every backend."""
    settings: dict[str, OptionValue] = {}
    if task.suite == "atari":
        settings = {"repeat_action_probability": 0, "last_frames": True}
        if task.id in _WITHOUT_NOOP:
            settings["any_noop"] = True
        if task.exact:
            settings["noop_max"] = task.no_ops
    elif task.suite == "mujoco" and task.exact and task.id not in ALWAYS_DRAWN:
        settings["reset_noise_scale"] = 0.0
    if task.frame_skip != SUITES[task.suite].tasks.get(task.id, task.frame_skip):
        settings["frame_skip"] = task.frame_skip
    return settings


@dataclass(frozen=True)
class Suite:
    """One kind of task. Functions and classes given as ``module:name`` are loaded on use."""

    name: str
    title: str
    make: str = "vebench.backends.environments.making:make_registered"  # returns one Gymnasium environment of a task
    environment_bytes: int = 8 * MIB  # memory of one more environment. The default is a guess.
    environment_seconds: float = 0.01  # CPU time to make and reset one of Gymnasium's environments, roughly
    tasks: Mapping[str, int] = field(default_factory=dict)  # known ids, with the frames or sub-steps in one step
    otherwise: str = ""  # the suite's further tasks, in words
    packages: tuple[Package, ...] = (GYMNASIUM,)  # the packages needed to make an environment
    sets: frozenset[str] = _OF_ANY  # arguments of an environment that vebench sets, and that users must not set
    recipe: Callable[[Task], Recipe] = _registered_recipe  # returns lines that make the environment without vebench
    plugin: str | None = None  # the module that registers the environments; None: Gymnasium itself
    observed: tuple[str, ...] = ()  # the observed arrays that are kept; empty: all
    namespace: str | None = None  # the prefix of all ids of the suite, also of ids that ``tasks`` lacks
    # Returns the number of frames in an environment's episode so far. With this function, ``make`` must set the task's
    # frame skip. None: steps have no frames to count.
    frames: str | None = None
    simulator: str | None = None  # the class of the bare simulator that ``ceiling`` steps
    # For simulators that step a whole batch in one call: a function of a task, a number of environments and a seed that
    # returns a vector environment. Empty: environments are made one by one.
    make_vec: str = ""
    drawn_together: str = ""  # for users' batches: returns ``Task.drawn_together``
    installation: str = ""  # the interpreter with its packages, which ``vebench install`` makes; empty: vebench's own
    real_actions: Literal["float32", "float64"] | None = None  # the type of real actions; None: the declared type
    usual: bool = True  # the extra ``all`` installs its packages, and a report names missing ones
    # vebench chose the environments. They are reproducible from a seed, and change only with a package's version. A
    # verdict on them therefore lasts.
    ours: bool = True

    def has(self, env_id: str, package: str) -> bool:
        """Return whether the suite includes the environment that ``package`` registers under this id."""
        named = env_id in self.tasks or (self.namespace is not None and env_id.startswith(self.namespace))
        return named and package == (self.plugin or GYMNASIUM.module)


@cache
def short_name(task_id: str) -> str:
    """Return a task's id without namespace and version: ``Pong`` for ``ALE/Pong-v5``. Module and arguments stay."""
    name, arguments = bracketed.cut(task_id)
    module, colon, name = name.rpartition(":")
    return module + colon + re.sub(r"-v\d+$", "", name.rpartition("/")[2]) + arguments


def known_as(env_id: str) -> str | None:
    """Return the current id of a task, given an older id. None: the id is current, or no suite knows the task.

    Examples: ``ALE/Pong-v5`` for ``PongNoFrameskip-v4``, ``HalfCheetah-v5`` for ``HalfCheetah-v4``.
    """
    for suite in SUITES.values():
        namespace = suite.namespace or ""
        name = re.sub(r"(NoFrameskip|Deterministic)?(-v\d+)?$", "", env_id.removeprefix(namespace), count=1)
        for known in suite.tasks:
            if known.startswith(f"{namespace}{name}-v"):
                return None if known == env_id else known
    return None


def load_target(target: str) -> Any:
    """Import the module of ``module:name``, and return its object ``name``, which may be dotted."""
    module, _, name = target.partition(":")
    return attrgetter(name)(import_module(module))


# All games that both ale-py 0.12.1 and EnvPool 1.2.5 have.
_ATARI_GAMES = tuple(
    """
    Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis Atlantis2 Backgammon BankHeist BasicMath
    BattleZone BeamRider Berzerk Blackjack Bowling Boxing Breakout Carnival Casino Centipede ChopperCommand
    CrazyClimber Crossbow Darkchambers Defender DemonAttack DonkeyKong DoubleDunk Earthworld ElevatorAction Enduro
    Entombed Et FishingDerby FlagCapture Freeway Frogger Frostbite Galaxian Gopher Gravitar Hangman HauntedHouse Hero
    HumanCannonball IceHockey Jamesbond JourneyEscape Kaboom Kangaroo KeystoneKapers KingKong Klax Koolaid Krull
    KungFuMaster LaserGates LostLuggage MarioBros MiniatureGolf MontezumaRevenge MrDo MsPacman NameThisGame Othello
    Pacman Phoenix Pitfall Pitfall2 Pong Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest SirLancelot
    Skiing Solaris SpaceInvaders SpaceWar StarGunner Superman Surround Tennis Tetris TicTacToe3D TimePilot Trondead
    Turmoil Tutankham UpNDown Venture VideoCheckers VideoChess VideoCube VideoPinball WizardOfWor WordZapper
    YarsRevenge Zaxxon
    """.split()  # noqa: SIM905 - a list literal would be a hundred lines
)
_ATARI_FRAME_SKIP = 4

# Tasks whose start is random in Gymnasium with any arguments.
ALWAYS_DRAWN = frozenset({"Pusher-v5", "Reacher-v5"})

# The tasks of dm_control's suite that have a time limit, by the number of physics sub-steps in one step.
_DM_CONTROL_SUB_STEPS = {
    1: (
        "acrobot-swingup acrobot-swingup_sparse cartpole-balance cartpole-balance_sparse cartpole-swingup "
        "cartpole-swingup_sparse cartpole-two_poles cartpole-three_poles cheetah-run pendulum-swingup point_mass-easy "
        "point_mass-hard reacher-easy reacher-hard"
    ),
    2: "finger-spin finger-turn_easy finger-turn_hard",
    3: "dog-stand dog-walk dog-trot dog-run dog-fetch",
    4: "hopper-stand hopper-hop quadruped-walk quadruped-run quadruped-escape quadruped-fetch",
    5: "humanoid-stand humanoid-walk humanoid-run humanoid-run_pure_state",
    10: (
        "ball_in_cup-catch fish-upright fish-swim humanoid_CMU-stand humanoid_CMU-walk humanoid_CMU-run "
        "manipulator-bring_ball manipulator-bring_peg manipulator-insert_ball manipulator-insert_peg stacker-stack_2 "
        "stacker-stack_4 walker-stand walker-walk walker-run"
    ),
    15: "swimmer-swimmer6 swimmer-swimmer15",
}

_JAX_ENV = "vebench.backends.batched.jax_env:JaxVector"


def _batched(library: Package, title: str, example: str, target: str = _JAX_ENV) -> Suite:
    """Return the suite of a library whose tasks are named ``library:name``. Arguments in brackets go to the library."""
    name = library.name.lower().replace("-", "_")
    in_jax = target == _JAX_ENV
    return Suite(
        name=name,
        title=title,
        make="vebench.backends.batched.vectors:make_single",
        environment_bytes=MIB // 4,
        otherwise=f"{name}:{example}{f', and all other ids of {title}' if in_jax else ''}",
        packages=(GYMNASIUM, *((packages.JAX,) if in_jax else ()), library),
        sets=frozenset(),
        recipe=lambda _task: Recipe((), ()),
        namespace=f"{name}:",
        make_vec=target,
        installation=library.name.lower(),
        usual=False,
    )


# ``environment_bytes`` are proportional set sizes after some steps, rounded up. Measured on x86-64 Linux with Gymnasium
# 1.4, ale-py 0.12 and mujoco 3.6: 1.3 MiB for Atari, 1.2 MiB for MuJoCo, 0.01 MiB for classic control. EnvPool 1.2
# needs the same or less.
SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            name="atari",
            title="Atari",
            environment_seconds=0.18,
            make="vebench.backends.environments.simulators:make_atari",
            environment_bytes=2 * MIB,
            tasks={f"ALE/{game}-v5": _ATARI_FRAME_SKIP for game in _ATARI_GAMES},
            packages=(GYMNASIUM, packages.ALE_PY, packages.OPENCV),
            # ``max_episode_steps`` would count frames, since the emulator is stepped frame by frame.
            sets=_OF_ANY.union(
                ("game", "frameskip", "repeat_action_probability", "full_action_space"),
                ("max_num_frames_per_episode", "max_episode_steps"),
            ),
            recipe=_atari_recipe,
            plugin="ale_py",
            namespace="ALE/",
            frames="vebench.backends.environments.simulators:emulator_frames",
            simulator="vebench.backends.environments.simulators:Emulator",
        ),
        Suite(
            name="mujoco",
            title="MuJoCo",
            environment_seconds=0.0035,
            make="vebench.backends.environments.simulators:make_mujoco",
            environment_bytes=2 * MIB,
            # Physics sub-steps in one step, as in Gymnasium's classes.
            tasks={
                "Ant-v5": 5,
                "HalfCheetah-v5": 5,
                "Hopper-v5": 4,
                "Humanoid-v5": 5,
                "HumanoidStandup-v5": 5,
                "InvertedDoublePendulum-v5": 5,
                "InvertedPendulum-v5": 2,
                "Pusher-v5": 5,
                "Reacher-v5": 2,
                "Swimmer-v5": 4,
                "Walker2d-v5": 4,
            },
            packages=(GYMNASIUM, MUJOCO, packages.IMAGEIO, packages.PACKAGING),
            sets=_OF_ANY | {"frame_skip"},
            frames="vebench.backends.environments.simulators:sub_steps",
            simulator="vebench.backends.environments.simulators:Physics",
            # EnvPool requires float64, and Gymnasium takes any type. Both must receive the same bits.
            real_actions="float64",
        ),
        Suite(
            name="classic",
            title="classic control",
            environment_bytes=64 * KIB,
            environment_seconds=0.0001,
            tasks=dict.fromkeys(
                ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"), 1
            ),
            real_actions="float32",
        ),
        Suite(
            name="dm_control",
            title="DeepMind Control",
            tasks={f"dm_control/{name}-v0": n for n, names in _DM_CONTROL_SUB_STEPS.items() for name in names.split()},
            packages=(GYMNASIUM, MUJOCO, packages.DM_CONTROL, packages.SHIMMY),
            plugin="shimmy",
            namespace="dm_control/",
            real_actions="float64",
            usual=False,
        ),
        Suite(
            name="minigrid",
            title="MiniGrid",
            otherwise="MiniGrid-Empty-8x8-v0 and all other MiniGrid ids",
            packages=(GYMNASIUM, packages.MINIGRID),
            observed=("direction", "image"),  # without the mission, which is text
            plugin="minigrid",
            namespace="MiniGrid-",
            usual=False,
        ),
        _batched(packages.GYMNAX, "gymnax", "CartPole-v1"),
        _batched(packages.BRAX, "brax", "halfcheetah"),
        _batched(packages.JAXTARI, "JAXtari", "pong"),
        _batched(packages.PLAYGROUND, "MuJoCo Playground", "CheetahRun"),
        _batched(packages.MUJOCO_WARP, "MuJoCo Warp", "HalfCheetah", "vebench.backends.batched.warp_env:HalfCheetah"),
        Suite(
            name="gymnasium",
            title="other Gymnasium",
            otherwise="any registered id with arrays, or Dict or Tuple of arrays, or module:Id",
            ours=False,
        ),
        Suite(
            name="callable",
            title="your own",
            make="vebench.backends.environments.making:make_called",
            otherwise="module:callable, for any callable that returns an environment",
            sets=frozenset(),
            recipe=_called_recipe,
            ours=False,
        ),
        Suite(
            name="vectors",
            title="your own, batched",
            environment_bytes=MIB // 4,
            make="vebench.backends.batched.vectors:make_single",
            make_vec="vebench.backends.batched.vectors:make_called",
            drawn_together="vebench.backends.batched.vectors:drawn_together",
            otherwise="module:callable with an argument num_envs, for a vector environment of NumPy, JAX or torch",
            sets=frozenset({"num_envs", "seed"}),
            recipe=_called_recipe,
            ours=False,
        ),
    )
}

OTHER = SUITES["gymnasium"]  # the suite of registered ids that no other suite includes
CALLED = SUITES["callable"]  # the suite of tasks with an id ``module:callable``
VECTORS = SUITES["vectors"]  # the same, for callables that make vector environments


def library_of(name: str) -> Suite | None:
    """Return the suite of a library that steps whole batches, for a task ``library:name``; None for other names."""
    library = f"{name.partition(':')[0]}:"
    return next((suite for suite in SUITES.values() if suite.namespace == library), None)


DRIFTING_ENGINES = frozenset({"MuJoCo"})  # versions give different rows: HalfCheetah's differ by 15 within 300 steps
