"""Finds the games that a reset always starts in the same state: ``python tools/settled_resets.py``, 15 minutes.

A reset of the console draws the value of a timer, 1 of 75, from a generator of the console's own, and leaves the 128
bytes of RAM as they are. Most games overwrite both while they start. For those the state after a reset can be kept and
restored instead of a reset, 50 times as fast: ``backends/fast/atari.py`` does, for the games that this writes to
``backends/fast/settled.py``. A game is one of them if

- after each of 450 resets the whole state is the same, and again a no-op later, when it is first shown. What may differ
  is the number of frames since the game was loaded, the console's generator, and two numbers of cycles that are written
  before they are read (``state_of``). The generator always has the same seed, and draws all values of the timer within
  340 resets. The resets come right after another, in the midst of a game, at its
  end, and with random bytes in the RAM;
- what is seen of the frames that follow is the same, too, after a reset and after the state is restored: an emulator's
  state lacks its two frame buffers and the shapes that are being drawn. It is restored in another emulator, with
  another seed, in the midst of a game and at its end;
- all frames end in time wherever it is restored, and ale-py saves all that belongs to the game.

The exit status is 1 if the list changes. With ``--only`` it is not written.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import ale_py
import gymnasium
import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms
from orphans import end_with_parent

from vebench.backends.environments.suites import short_name
from vebench.backends.fast.classes import class_of
from vebench.backends.fast.settled import SETTLED
from vebench.plan.tasks import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILED = Path(__file__).resolve().parents[1] / "backends" / "fast" / "settled.py"
RESETS = 450
PLAYED_ON = 10  # after one in so many of them
RESTORED = 100
ENDS = 4  # of episodes, each restored at
TAPES, FRAMES = 8, 120
WAITED = [Action.NOOP]
MOST_FRAMES = 4000  # of an episode played to its end
RAM = 128
# The instructions after which the emulator stops a frame take at least so many cycles; a whole frame has 19,912.
CYCLES = 40_000
SAVED_FALSE = bytes.fromhex("d2bad1ba")
# What ale-py does not save of a game, or saves as something else, by its source: in few episodes would it be seen.
NOT_SAVED = {
    "0.12.1": {
        "chopper_command": "whether it has begun",
        "hangman": "the last values of its clock",
        "miniature_golf": "its numbers, as true or false",
        "pitfall2": "a fraction of its cartridge's clock",
        "video_cube": "the last values of its clock",
    },
}


def main() -> int:
    """Look at each game, print what was found, and write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of games, such as Pong,Breakout")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    games = wanted({name for name in asked.only.split(",") if name})
    settled = {game for game, problem in problems(games, asked.processes) if not problem}
    before = set(SETTLED.get(ale_py.__version__, ())) & set(games)
    for what, names in (("new", settled - before), ("no longer", before - settled)):
        if names:
            print(f"{what}: {', '.join(sorted(names))}")
    print(f"{len(settled)} of {len(games)} games, ale-py {ale_py.__version__}")
    if not asked.only:
        write({**SETTLED, ale_py.__version__: frozenset(settled)})
    return settled != before


def wanted(names: set[str]) -> list[str]:
    """Return the emulator's names of the games of these names, or of all for which there is a class of our own."""
    gymnasium.register_envs(ale_py)
    ids = [task.id for task in KNOWN if task.suite == "atari" and class_of(task.id) is not None]
    if unknown := names - {name for env_id in ids for name in (env_id, short_name(env_id))}:
        raise SystemExit(f"--only {', '.join(sorted(unknown))}: there is no class of our own for it")
    chosen = [env_id for env_id in ids if not names or names & {env_id, short_name(env_id)}]
    return [str(gymnasium.spec(env_id).kwargs["game"]) for env_id in chosen]


def problems(games: Sequence[str], processes: int) -> Iterator[tuple[str, str]]:
    """Yield each game with why its resets are not settled, nothing if they are, as they come, and print it."""
    started = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=quiet) as pool:
        asked = {pool.submit(problem_of, game): game for game in games}
        for count, answered in enumerate(as_completed(asked), 1):
            game, problem = asked[answered], answered.result()
            spent = f"{(time.monotonic() - started) / 60:.1f} min"
            print(f"[{count}/{len(asked)}, {spent}] {game}: {problem or 'settled'}", flush=True)
            yield game, problem


def quiet() -> None:
    """Let others go first, and keep the emulator's greeting to itself."""
    end_with_parent()
    os.nice(10)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    ALEInterface.setLoggerMode(LoggerMode.Error)


def problem_of(game: str) -> str:
    """Return the first sign that a reset of a game cannot be replaced by its result, nothing if none was found."""
    if game in (unsaved := NOT_SAVED.get(ale_py.__version__, {})):
        return f"ale-py does not save {unsaved[game]}"
    survey = Survey(game)
    return survey.after_resets() or survey.after_restoring()


@dataclass(frozen=True)
class Seen:
    """What is seen of the frames of one tape of actions, and the state after them."""

    frames: tuple[tuple[Any, ...], ...]
    state: bytes


class Survey:
    """One game in two emulators: what the first does after its first reset, all others are compared with."""

    def __init__(self, game: str) -> None:
        self._random = np.random.default_rng(sum(game.encode()))
        self._reset, self._restored = (emulator(game, seed) for seed in (1, 2))
        self._actions = self._reset.getMinimalActionSet()
        self._tapes = [self._tape(number) for number in range(TAPES)]
        self._paddles = self._turns_paddles(self._restored)
        self._reset.reset_game()
        self._state = self._reset.cloneState(include_rng=False)
        self._expected = self._state_of(self._reset)
        self._waited = self._of(self._reset, WAITED)
        self._seen = []
        for tape in self._tapes:
            self._reset.reset_game()
            self._seen.append(self._of(self._reset, tape))

    def _tape(self, number: int) -> list[Action]:
        """Return actions: no-ops as at the start of an episode, then some that are held for a few frames each."""
        waits = [Action.NOOP] * int(self._random.integers(1, 31)) if number else []
        played = [self._drawn() for _ in range(FRAMES) for _ in range(4)]
        return (waits + [action for action in played[::4] for _ in range(4)])[:FRAMES]

    def _drawn(self) -> Action:
        return self._actions[int(self._random.integers(len(self._actions)))]

    def _turns_paddles(self, ale: ALEInterface) -> bool:
        """Return whether actions turn the paddles: where they are is what a state begins with."""
        ale.reset_game()
        before = ale.cloneState(include_rng=False).__getstate__()[:8]
        self._play(ale, 200)
        return bool(ale.cloneState(include_rng=False).__getstate__()[:8] != before)

    def _state_of(self, ale: ALEInterface) -> bytes:
        return state_of(ale, paddles=self._paddles)

    def _of(self, ale: ALEInterface, tape: Sequence[Action]) -> Seen:
        return Seen(seen(ale, tape), self._state_of(ale))

    def after_resets(self) -> str:
        """Return where a state after a reset, or a frame after that, is not as it was at first."""
        ale = self._reset
        for trial in range(RESETS):
            if trial % 3 == 1:
                self._play(ale, MOST_FRAMES if trial < 3 * ENDS else int(self._random.integers(1, 60)))
            elif trial % 3 == 2:
                for index, value in enumerate(self._random.integers(256, size=RAM).tolist()):
                    ale.setRAM(index, value)
            ale.reset_game()
            if self._state_of(ale) != self._expected:
                return f"another state after reset {trial}"
            if trial % PLAYED_ON == 0:
                problem = self._played_on(ale, trial)
            else:
                problem = "" if self._of(ale, WAITED) == self._waited else "another frame 0"
            if problem:
                return f"{problem} after reset {trial}"
        return ""

    def after_restoring(self) -> str:
        """Return where a frame after the restored state is not as after a reset, or cannot be relied on to be."""
        ale = self._restored
        for trial in range(RESTORED + ENDS):
            if trial < RESTORED:
                self._play(ale, int(self._random.integers(0, 300)))
            else:
                self._play(ale, MOST_FRAMES)
            if cycles_of(ale) > CYCLES:
                return "a frame that does not end in time"
            ale.restoreState(self._state)
            if problem := self._played_on(ale, trial):
                return f"{problem} after it is restored, time {trial}"
        return ""

    def _played_on(self, ale: ALEInterface, trial: int) -> str:
        number = trial // PLAYED_ON % TAPES if ale is self._reset else trial % TAPES
        expected, found = self._seen[number], self._of(ale, self._tapes[number])
        for frame, (one, other) in enumerate(zip(expected.frames, found.frames, strict=True)):
            if one != other:
                return f"another frame {frame}"
        return "" if expected.state == found.state else "another state later"

    def _play(self, ale: ALEInterface, frames: int) -> None:
        """Play so many frames, or until the game is over."""
        for _ in range(0, frames, 4):
            action = self._drawn()
            for _ in range(4):
                ale.act(action)
            if ale.game_over():
                return


def emulator(game: str, seed: int) -> ALEInterface:
    """Return an emulator with a game, without chance and with the game's own mode and difficulty."""
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(game))
    return ale


def seen(ale: ALEInterface, tape: Sequence[Action]) -> tuple[tuple[Any, ...], ...]:
    """Return what is seen of the frames of a tape: each with what ended with it, its screen and the RAM."""
    frames = []
    for action in tape:
        reward = ale.act(action)
        numbers = reward, ale.lives(), ale.game_over(), ale.game_truncated(), ale.getEpisodeFrameNumber()
        frames.append((*numbers, ale.getScreen().tobytes(), ale.getRAM().tobytes()))
    return tuple(frames)


def state_of(ale: ALEInterface, *, paddles: bool) -> bytes:
    """Return an emulator's state without what no later frame depends on, or what all games count.

    That is: the number of frames since the game was loaded, and the console's generator. Of the RIOT, the cycle at
    which its timer's interrupt was reset, which is read only after the timer was read past its end and this was noted.
    Of the TIA, the cycle at which it began to charge the paddles, unless the game has some: others never read it.
    """
    state = bytearray(ale.cloneState(include_rng=False).__getstate__())
    riot, sound = state.index(b"M6532") + len("M6532"), state.index(b"TIASound")
    interrupt, noted = riot + 4 * 132, riot + 4 * 133
    if state[noted : noted + 4] == SAVED_FALSE:
        state[interrupt:noted] = bytes(4)
    if not paddles:
        state[sound - 8 : sound - 4] = bytes(4)
    generator = _after_cycles(state)
    length = int.from_bytes(state[generator : generator + 4], "little")
    # Six whole numbers, the number of frames being the third. The length of the rest, which the generator's text makes
    # longer or shorter. The console, up to the generator; what comes after it.
    return bytes(state[:8] + state[12:24] + state[28:generator] + state[generator + 4 + length :])


def cycles_of(ale: ALEInterface) -> int:
    """Return how many cycles of the processor the last frame has taken."""
    state = ale.cloneState(include_rng=False).__getstate__()
    end = _after_cycles(state)
    return int.from_bytes(state[end - 4 : end], "little")


def _after_cycles(state: bytes | bytearray) -> int:
    return state.index(b"System") + len("System") + 4


def write(settled: Mapping[str, frozenset[str]]) -> None:
    """Write the games of each version."""
    before, _, after = FILED.read_text().partition("_GAMES = {\n")
    _, _, after = after.partition("}\n")
    versions = [
        f'    "{version}": """\n'
        + fill(" ".join(sorted(games)), 120, initial_indent=" " * 8, subsequent_indent=" " * 8)
        + '\n    """,\n'
        for version, games in sorted(settled.items())
    ]
    FILED.write_text(f"{before}_GAMES = {{\n{''.join(versions)}}}\n{after}")


if __name__ == "__main__":
    sys.exit(main())
