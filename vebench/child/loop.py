"""The only timed loop. It contains only ``send``, ``recv``, the counting of rows, and the recorder's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from operator import length_hint
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.backends.batched.arrays import wait
from vebench.backends.interface import VectorBackend
from vebench.child.actions import Actions
from vebench.child.equality.recorder import Recorder
from vebench.child.equality.recording import BrokenInterfaceError, malformed


class Stretch(NamedTuple):
    """One stretch of the loop."""

    ns: int
    rows: int
    resets: int  # rows that only report a reset
    times: Mapping[str, int] = MappingProxyType({})  # fields of ``Window`` that the ``Actions`` measured


class Loop:
    """Steps one backend with actions of a tape, or of a policy, and counts rows and resets.

    With ``next_step`` autoreset, the row after an end is a reset, not a transition. Looking up each row would double
    the cost of the loop. Instead, the resets of a stretch are its ends, plus the ends outstanding before the stretch,
    minus the ends outstanding after it: every end is followed by a reset row.

    ``batches`` counts the batches stepped. ``ends`` counts the episodes that have ended.
    """

    def __init__(
        self, backend: VectorBackend, actions: Actions, clock: Callable[[], int], recorder: Recorder | None = None
    ) -> None:
        self._backend, self._info = backend, backend.info
        self._actions = actions
        self._clock = clock
        self._recorder = recorder
        self.batches = self.ends = 0
        self.num_envs, self.batch_size = self._info.num_envs, self._info.batch_size
        self._ended = np.zeros(self._info.num_envs, np.bool_)
        self._resets_own_rows = self._info.autoreset == "next_step"
        self._go = self._step_on_device if self._info.on_device else self._step

    def run_for(self, duration_ns: int, batches_per_reading: int) -> Stretch:
        """Step batches until ``duration_ns`` is over, and read the clock every ``batches_per_reading`` on average."""
        clock, recorder = self._clock, self._recorder
        outstanding = self._outstanding()
        rows = ends = 0
        batches = batches_per_reading
        self._actions.begins()
        start = now = clock()
        while now - start < duration_ns or (recorder is not None and recorder.following):
            if recorder is not None:
                batches = recorder.stretch(batches_per_reading)
            more_rows, more_ends, batch = self._go(batches)
            if recorder is not None:
                recorder.take(self.batches, batch, self._ended)
            del batch  # frees its arrays
            now = clock()
            rows += more_rows
            ends += more_ends
        resets = ends + outstanding - self._outstanding() if self._resets_own_rows else 0
        if recorder is not None:
            recorder.ids.tidy()
        return Stretch(now - start, rows, resets, self._actions.times())

    def keep_first(self, batches: int) -> None:
        """Step and record the first batches after the reset, if there is a recorder. Stop early after half a second."""
        until, recorder = self._clock() + 500_000_000, self._recorder
        while recorder is not None and self.batches < batches and self._clock() <= until:
            batch = self.step()
            recorder.keep_first(self.batches, batch)

    def step(self, batches: int = 1) -> tuple[NDArray[Any], ...]:
        """Step this many batches, and return the last. Call this outside a window."""
        return self._go(batches)[2]

    def wait_for(self, env_ids: Iterable[int], duration_ns: int) -> set[int]:
        """Step batches outside a window, for at most ``duration_ns``. Returns the environments that did not answer."""
        missing, until = set(env_ids), self._clock() + duration_ns
        while missing and self._clock() < until:
            missing.difference_update(self.step()[4].tolist())
        return missing

    def go_to_an_end(self, duration_ns: int) -> None:
        """Step batches outside a window until an episode ends, for at most ``duration_ns``."""
        until = self._clock() + duration_ns
        while not self._outstanding() and self._clock() < until:
            self.step()

    def _outstanding(self) -> int:
        return int(np.count_nonzero(self._ended))

    def _step(self, batches: int) -> tuple[int, int, tuple[NDArray[Any], ...]]:
        """Step ``batches`` batches, fewer at an end that the recorder awaits. Return rows, ends, and the last batch."""
        send, recv = self._backend.send, self._actions.receiving(self._backend.recv)
        ended, recorder = self._ended, self._recorder
        note, note_end = (None, None) if recorder is None else (recorder.ids.note, recorder.ids.note_end)
        awaited: frozenset[int] = frozenset() if recorder is None else recorder.awaited
        rows = ends = 0
        ticks = repeat(None, batches)  # counts batches three times as fast as a Python integer
        outstanding = bool(self._outstanding())
        in_order = slice(None) if self._info.in_order else None  # a slice is faster than ids in batches of thousands
        none: Any = None
        observations = rewards = terminated = truncated = env_ids = none
        try:
            for _, actions in zip(ticks, self._actions):  # noqa: B905 - actions are endless
                send(actions)
                observations, rewards, terminated, truncated, env_ids = recv()
                rows += len(env_ids)
                if note is not None:
                    note(env_ids.tobytes())
                # Most batches contain no end. When another thread has just woken this one, the caches are cold. Then
                # this search takes 1 microsecond, and three numpy calls take 4. It matters if every CPU has a thread.
                if 1 in terminated.tobytes() or 1 in truncated.tobytes():
                    over = terminated | truncated
                    ended[env_ids if in_order is None else in_order] = over
                    ends += int(np.count_nonzero(over))
                    outstanding = True
                    if note_end is not None:
                        note_end(over)
                    if awaited and not awaited.isdisjoint(env_ids[over].tolist()):
                        break
                elif outstanding:
                    ended[env_ids if in_order is None else in_order] = False
                    outstanding = bool(self._outstanding())
        except (AttributeError, IndexError, TypeError, ValueError):
            arrays = (observations, rewards, terminated, truncated, env_ids)
            if env_ids is not None and (fault := malformed(arrays, self._info)) is not None:
                raise BrokenInterfaceError(f"recv() breaks the interface: {fault}") from None
            raise
        batches -= length_hint(ticks)
        self.batches += batches
        self.ends += ends
        if recorder is not None:
            recorder.stepped(self.batches, rows, batches, env_ids)
        return rows, ends, (observations, rewards, terminated, truncated, env_ids)

    def _step_on_device(self, batches: int) -> tuple[int, int, tuple[NDArray[Any], ...]]:
        """Step ``batches`` batches, ignore flags, and wait for the last batch. Return the same as ``_step``."""
        send, recv, rows = self._backend.send, self._backend.recv, 0
        ticks = repeat(None, batches)
        batch: tuple[Any, ...] = ()
        for _, actions in zip(ticks, self._actions):  # noqa: B905 - actions are endless
            send(actions)
            batch = recv()
            rows += len(batch[4])
        wait(tuple(batch))
        self.batches += batches
        if self._recorder is not None:
            self._recorder.stepped(self.batches, rows, batches, batch[4])
        return rows, 0, batch
