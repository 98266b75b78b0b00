"""The environments: facts of those known by name, and a lookup for every other that Gymnasium can make."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from vebench.backends.interface import Task
from vebench.errors import UsageError, did_you_mean, shown
from vebench.interpreters.lookup import ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.plan.spec import BackendChoice

ATARI_FRAME_SKIP = 4
MOST_NAMED = 5  # of a module's environments in an error

# All that ale-py 0.12.1 and EnvPool 1.2.5 carry both.
ATARI_GAMES = tuple(
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

# The one game that EnvPool spells otherwise; it gives the same bytes.
POOL_SPELLINGS = {"TicTacToe3D": "TicTacToe3d"}

# Sub-steps of the physics in one step, as the environments' own classes have it.
MUJOCO_FRAME_SKIPS = {
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
}

CLASSIC_CONTROL = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")

KNOWN: tuple[Task, ...] = (
    *(
        Task(f"ALE/{game}-v5", "atari", ATARI_FRAME_SKIP, f"{POOL_SPELLINGS.get(game, game)}-v5")
        for game in ATARI_GAMES
    ),
    *(Task(name, "mujoco", frame_skip, name) for name, frame_skip in MUJOCO_FRAME_SKIPS.items()),
    *(Task(name, "classic", 1, name) for name in CLASSIC_CONTROL),
)


def short_name(task_id: str) -> str:
    """Return a task's name without module, namespace and version: ``Pong`` for ``ALE/Pong-v5``."""
    return re.sub(r"-v\d+$", "", re.split(r"[/:]", task_id)[-1])


# Full, without version (Gymnasium then takes the latest, and these are), and short.
BY_NAME: Mapping[str, Task] = {
    name: task for task in KNOWN for name in (task.id, re.sub(r"-v\d+$", "", task.id), short_name(task.id))
}


def resolve(
    names: Sequence[str],
    backends: Sequence[BackendChoice] = (),
    *,
    python: str = sys.executable,
    timeout: float = 120.0,
) -> tuple[Task, ...]:
    """Return the tasks that ``names`` mean, each once, in that order.

    Names of ours need no lookup. Every other, and every third party's adapter among ``backends``, is tried out in the
    interpreter ``python``, which may take up to ``timeout`` seconds. Raises UsageError for an environment that is not
    there or cannot be stepped, and for an adapter that cannot be loaded.
    """
    names = [name.strip() for name in names]
    if not all(names):
        raise UsageError("--env: a name is missing, such as Pong, HalfCheetah or CartPole; vebench list shows more")
    unknown = list(dict.fromkeys(name for name in names if name not in BY_NAME))
    adapters = list(dict.fromkeys((choice.name, tuple(choice.options)) for choice in backends if ":" in choice.name))
    found = dict(BY_NAME)
    if unknown or adapters:
        answer = ask(unknown, adapters, python, timeout)
        for (target, _), facts in zip(adapters, answer["adapters"], strict=True):
            _check_adapter(target, facts)
        for name, facts in zip(unknown, answer.get("envs", ()), strict=True):
            found[name] = _task(name, facts, answer.get("registered", ()))
    return _distinct([found[name] for name in names])


def _check_adapter(target: str, facts: Mapping[str, Any]) -> None:
    if "error" in facts:
        near = did_you_mean(facts.get("wanted", ""), facts.get("names", ()))
        raise UsageError(f"--backend {shown(target)}: {facts['error']}{near}")


def _task(name: str, facts: Mapping[str, Any], registered: Sequence[str]) -> Task:
    """Return the task that the lookup of ``name`` found. Raises UsageError if it found none that can be stepped."""
    if "error" in facts:
        raise UsageError(f"--env {shown(name)}: {facts['error'] or _missing(name, facts, registered)}")
    # Only what a package has registered itself is known here: a user's module may have put another in its place.
    if facts["package"] in ("gymnasium", "ale_py") and facts["id"] in BY_NAME:
        return BY_NAME[facts["id"]]
    if facts["package"] == "ale_py":
        if facts["id"].startswith("ALE/"):
            return Task(facts["id"], "atari", ATARI_FRAME_SKIP)
        return Task(facts["id"], "gymnasium", facts["frame_skip"], module="ale_py")
    return Task(facts["id"], "gymnasium", facts["frame_skip"], module=facts["module"])


def _missing(name: str, facts: Mapping[str, Any], registered: Sequence[str]) -> str:
    """Return that there is no such environment, and what may have been meant: names of ours come first."""
    module, _, env_id = name.rpartition(":")
    if module:
        names = facts.get("names", ())
        some = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        near = did_you_mean(env_id, names)
        return f"module {module} registers no {shown(env_id)}{near}; it registers {some or 'none'}"
    ours = {short_name(task.id).casefold(): short_name(task.id) for task in KNOWN}
    same = ours.get(short_name(name).casefold())
    near = f" (did you mean {same}?)" if same else did_you_mean(name, [*ours.values(), *registered])
    return (
        f"no such environment{near}; vebench list shows the known ones; "
        "registered by a module of yours? write MODULE:ID"
    )


def _distinct(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks without repetition. Raises UsageError where one id would mean two of them."""
    by_id: dict[str, Task] = {}
    for task in tasks:
        if by_id.setdefault(task.id, task) != task:
            raise UsageError(f"--env {task.id}: named twice, with different meanings; measure them in two runs")
    return tuple(by_id.values())
