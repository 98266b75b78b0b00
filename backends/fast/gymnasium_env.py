"""What settings mean: the environment that Gymnasium and its wrappers make of them, which our own classes stand for."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation

from vebench.backends.environments.making import keep_opencv_to_one_thread
from vebench.backends.environments.suites import SUITES, known_as, load, short_name
from vebench.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Settings of a game, by who takes them: ``gymnasium.make``, ``AtariPreprocessing``, and what is put around both here.
_OF_THE_EMULATOR = frozenset(
    {
        "difficulty",
        "full_action_space",
        "max_num_frames_per_episode",
        "mode",
        "render_mode",
        "repeat_action_probability",
    }
)
_OF_THE_SCREEN = frozenset(
    {
        "frame_skip",
        "grayscale_newaxis",
        "grayscale_obs",
        "noop_max",
        "scale_obs",
        "screen_size",
        "terminal_on_life_loss",
    }
)
_AROUND = frozenset({"any_noop", "last_frames", "reward_clip", "stack"})
# What other libraries call such a setting, and what to say to those who know it from there.
_ELSEWHERE = {
    "episodic_life": "it is terminal_on_life_loss here",
    "frame_stack": "it is stack here",
    "frameskip": "it is frame_skip here",
    "gray_scale": "it is grayscale_obs here",
    "img_height": "it is screen_size=(columns, rows) here",
    "img_width": "it is screen_size=(columns, rows) here",
    "max_episode_steps": "it is max_num_frames_per_episode here, in frames: steps x frame_skip",
    "num_threads": "it is num_processes here",
    "stack_num": "it is stack here",
    "stack_size": "it is stack here",
    "use_fire_reset": "no game here is told to fire at a reset",
}


def name_of(env_id: str) -> str:
    """Return the name by which Gymnasium knows an environment, once the module is loaded that registers it.

    ``env_id`` may begin with that module, as for ``gymnasium.make``: ``module:Env-v0``. Without a version it is the
    latest, likewise. The short names of ``vebench list`` mean what they mean there: ``Pong`` is ``ALE/Pong-v5``.
    """
    module, _, name = env_id.rpartition(":")
    name = _SHORT_NAMES.get(name, name)
    known = known_as(name) or name  # an old id of a game has no namespace, and the same plugin registers it
    plugins = {suite.plugin for suite in SUITES.values() if suite.namespace and known.startswith(suite.namespace)}
    for needed in (module, *plugins):
        if needed:
            import_module(needed)
    namespace, plain, version = parse_env_id(name)
    latest = find_highest_version(namespace, plain) if version is None else None
    return name if latest is None else get_env_id(namespace, plain, latest)


def make(env_id: str, settings: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment: of a game with the usual wrappers, of anything else as ``gymnasium.make`` returns it.

    Raises what Gymnasium raises for a task that it cannot make, and for values that make no sense.
    """
    name = name_of(env_id)
    if not _is_game(name):
        return gymnasium.make(name, **{"disable_env_checker": True, **settings})
    return _make_game(name, **settings)


def check_settings(name: str, settings: Collection[str], arguments: Collection[str]) -> None:
    """Raise TypeError for a setting that means nothing to the task of this name.

    The error says what else may have been meant: a setting, or one of the ``arguments`` that are no settings.
    """
    if not settings:
        return
    known, elsewhere = (_ALL, _ELSEWHERE) if _is_game(name) else (_taken_by(name), {})
    for unknown in sorted(set(settings) - known) if known else ():
        near = did_you_mean(unknown, (*sorted(known), *arguments))
        hint = f": {elsewhere[unknown]}" if unknown in elsewhere else near or f": it has {', '.join(sorted(known))}"
        raise TypeError(f"{name} has no setting {unknown}{hint}")


def _is_game(name: str) -> bool:
    spec = gymnasium.registry.get(name)
    return spec is not None and str(spec.entry_point).startswith("ale_py.")


def _taken_by(name: str) -> frozenset[str]:
    """Return what ``gymnasium.make`` takes for an environment of Gymnasium's own; nothing if that is unknown."""
    spec = gymnasium.registry.get(name)
    if spec is None or not str(spec.entry_point).startswith("gymnasium.envs."):
        return frozenset()  # other classes may do whatever they like with what they are given
    taken = {*inspect.signature(gymnasium.make).parameters, *spec.kwargs} - {"id", "kwargs"}
    # A class passes on what it does not know to the class that it is based on, which it also tells what it has to know.
    for part in load(str(spec.entry_point)).__mro__:
        parameters = inspect.signature(part.__init__).parameters.values()
        taken |= {each.name for each in parameters if each.default is not each.empty}
        if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters):
            return frozenset(taken)
    return frozenset()


def _make_game(
    name: str,
    *,
    stack: int = 4,
    reward_clip: bool = False,
    last_frames: bool = False,
    any_noop: bool = False,
    **settings: Any,  # noqa: ANN401 - each has its own
) -> gymnasium.Env[Any, Any]:
    """Return a game as its wrappers show it.

    With ``last_frames`` or ``any_noop`` it is shown as backends show it: ``environments.atari_screen`` says how.
    """
    emulator = gymnasium.make(
        name,
        frameskip=1,
        disable_env_checker=True,
        **{key: settings[key] for key in settings.keys() & _OF_THE_EMULATOR},
    )
    of_the_screen = {key: settings[key] for key in settings.keys() & _OF_THE_SCREEN}
    screen: gymnasium.Env[Any, Any]
    if last_frames or any_noop:
        from vebench.backends.environments.atari_screen import AtariScreen  # noqa: PLC0415 - it loads ale-py

        screen = AtariScreen(emulator, last_frames=last_frames, any_noop=any_noop, **of_the_screen)
    else:
        screen = AtariPreprocessing(emulator, **of_the_screen)
    keep_opencv_to_one_thread()
    shown = FrameStackObservation(screen, stack)
    return ClipReward(shown, -1.0, 1.0) if reward_clip else shown


_SHORT_NAMES = {short_name(name): name for suite in SUITES.values() for name in suite.tasks}
_ALL = _OF_THE_EMULATOR | _OF_THE_SCREEN | _AROUND
