"""Names the fault of a backend whose rows differ from the reference's: each known fault is a hypothesis to test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from vebench.backends.environments.suites import SUITES
from vebench.child.proof.compare import collect
from vebench.child.proof.pictures import picture as as_picture
from vebench.child.proof.reference import Reference
from vebench.child.proof.rows import Row, digested, same

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from vebench.backends.interface import Task, VectorBackend
    from vebench.child.answers import Mismatch

# Rows compared before and after the first that differs.
BEFORE, AFTER = 2, 24
# A backend that differs only in its pictures must agree in everything else for this many steps.
PICTURE_STEPS = 200
FRAME_SKIPS = range(1, 9)


@dataclass(frozen=True)
class Case:
    """A backend whose rows differ from the reference's, and everything needed to run it again."""

    task: Task
    mismatch: Mismatch
    build: Callable[[], VectorBackend]
    tape: NDArray[np.generic]
    num_envs: int
    seed: int
    same_step: bool = False

    @property
    def last(self) -> int:
        """The last step to compare."""
        return self.mismatch.step + AFTER

    def found(
        self, tape: NDArray[np.generic] | None = None, seed: int | None = None, steps: int | None = None
    ) -> dict[int, list[Row]]:
        """Build the backend again, and return its rows by environment and step."""
        backend = self.build()
        try:
            return collect(
                backend, self.tape if tape is None else tape, steps or self.last, self.seed if seed is None else seed
            )
        finally:
            backend.close()

    def expected(
        self,
        task: Task | None = None,
        envs: int | None = None,
        seed: int | None = None,
        steps: int | None = None,
        variant: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[int, list[Row]]:
        """Return the reference's rows by environment and step, of the first ``envs`` environments if that is given."""
        rows: dict[int, list[Row]] = {}
        for env_id in range(envs or self.num_envs):
            reference = Reference(
                task or self.task, env_id, self.seed if seed is None else seed, variant, same_step=self.same_step
            )
            rows[env_id] = self._stepped(reference, env_id, steps or self.last)
        return rows

    def repeatable(self) -> bool:
        """Return whether two runs of the reference give the same rows. Tasks that vebench knows always do."""
        if SUITES[self.task.suite].ours:
            return True
        env_id = self.mismatch.env_id
        first, second = (
            {env_id: self._stepped(Reference(self.task, env_id, self.seed), env_id, self.last)} for _ in range(2)
        )
        return _all_alike(first, second)

    def _stepped(self, reference: Reference, env_id: int, steps: int) -> list[Row]:
        rows = [digested(reference.rows[0])]
        rows += [digested(reference.step(self.tape[step % len(self.tape), env_id])) for step in range(steps)]
        reference.close()
        return rows


def name_fault(case: Case) -> str:
    """Return the first known fault that explains the backend's rows, or that none does."""
    found, expected = case.found(), case.expected()
    for hypothesis in HYPOTHESES:
        fault = hypothesis(case, found, expected)
        if fault is not None:
            return fault
    return "no known fault explains it"


def miscounted_frames(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if rows agree but frames do not."""
    mismatch = case.mismatch
    if not _all_alike(expected, found):
        return None
    if mismatch.field == "frames":
        return f"simulates {mismatch.found} frames of {mismatch.expected} claimed"
    if mismatch.field == "claimed frames":
        return f"claims {mismatch.found} frames in a step where the reference simulates {mismatch.expected}"
    return None


def end_not_reported(case: Case, _found: dict[int, list[Row]], _expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if an episode ends and the backend does not report it."""
    mismatch = case.mismatch
    missed = mismatch.field in ("terminated", "truncated") and mismatch.expected == "True"
    return "an end is not reported" if missed else None


def no_reset(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if the row after an end continues the episode that is over."""
    env_id, step = case.mismatch.env_id, case.mismatch.step
    if step == 0 or not expected[env_id][step - 1].ended:
        return None
    reference = Reference(case.task, env_id, case.seed)
    for at in range(step):
        continued = digested(reference.step_on(case.tape[at % len(case.tape), env_id]))
    reference.close()
    first_end = not any(row.ended for row in expected[env_id][: step - 1])
    if first_end and _alike(found[env_id][step], continued):
        return "no reset after the end"
    return None


def other_autoreset(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if resets have their own rows but the backend reports that they do not, or vice versa."""
    if not any(row.ended for rows in expected.values() for row in rows):
        return None  # without an end the reference's rows are the same either way, and they are not the backend's
    if not _all_alike(replace(case, same_step=not case.same_step).expected(), found):
        return None
    real, reported = ("next_step", "same_step") if case.same_step else ("same_step", "next_step")
    return f"resets as {real}, but reports {reported}"


def clipped_rewards(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if the backend returns only the signs of rewards."""
    if case.mismatch.field != "rewards":
        return None
    pairs = [(f.reward, e.reward) for env_id in found for f, e in zip(found[env_id], expected[env_id])]  # noqa: B905
    clipped = all(one == np.sign(other) for one, other in pairs)
    return "rewards are clipped to their signs" if clipped else None


def one_row_for_all(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if every environment returns the rows of environment 0."""
    step = case.mismatch.step
    shown_alike = all(_alike(found[0][step], found[env_id][step]) for env_id in found)
    are_alike = all(_alike(expected[0][step], expected[env_id][step]) for env_id in expected)
    return "row 0 stands for every environment" if shown_alike and not are_alike else None


def ids_swapped(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if rows are right but their environment ids are swapped."""
    env_id = case.mismatch.env_id
    steps = range(max(0, case.mismatch.step - BEFORE), case.mismatch.step + 1)
    for other in expected:
        if other != env_id and all(_alike(found[env_id][step], expected[other][step]) for step in steps):
            return f"env ids are swapped: environment {env_id} shows the rows of environment {other}"
    return None


def stale(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if observations are one step late."""
    env_id, step = case.mismatch.env_id, case.mismatch.step
    steps = [at for at in range(max(1, step - BEFORE), step + AFTER) if not _ends_near(expected[env_id], at)]
    late = all(_sees(found[env_id][at], expected[env_id][at - 1]) for at in steps)
    moved = any(not _sees(expected[env_id][at], expected[env_id][at - 1]) for at in steps)
    return "observations are one step stale" if late and moved else None


def actions_ignored(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if other actions change nothing in the backend, but change the reference's rows.

    In some tasks the first actions change nothing: some games begin by themselves.
    """
    others = np.roll(case.tape, 1, axis=0)[::-1].copy()
    if np.array_equal(others[: case.last], case.tape[: case.last]):
        return None
    if _all_alike(replace(case, tape=others).expected(envs=1), expected):
        return None
    return "actions are ignored" if _all_alike(found, case.found(tape=others)) else None


def chance(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if another seed changes the backend's rows, but not the reference's."""
    another = case.seed + 1000
    if not _all_alike(case.expected(seed=another, envs=1), expected):
        return None
    again = case.found(seed=another)
    return None if _all_alike(found, again) else "something is random that must not be, such as sticky actions"


def frame_skip(case: Case, found: dict[int, list[Row]], expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if each step takes another number of frames."""
    if SUITES[case.task.suite].frames is None:
        return None
    if not _alike(found[0][0], expected[0][0]):
        return None  # no suite repeats anything for its frame skip in a reset: that row is the same with any
    for frames in FRAME_SKIPS:
        if frames == case.task.frame_skip:
            continue
        other = case.expected(replace(case.task, frame_skip=frames), envs=1)
        if _all_alike({0: found[0]}, other):
            return f"frame skip {frames} instead of {case.task.frame_skip}"
    return None


def faulty_variant(case: Case, found: dict[int, list[Row]], _expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if observations are those of a variant that the task's suite knows as faulty."""
    if case.mismatch.field != "observations":
        return None
    reference = Reference(case.task, 0, case.seed)
    variants = reference.faulty_variants
    reference.close()
    for fault, variant in variants.items():
        if _all_alike(case.expected(variant=variant, envs=1), found):
            return fault
    return None


def picture(case: Case, _found: dict[int, list[Row]], _expected: dict[int, list[Row]]) -> str | None:
    """Return the fault if observations differ while rewards and ends agree."""
    if case.mismatch.field != "observations":
        return None
    reference = Reference(case.task, 0, case.seed)
    shown = as_picture(reference.rows[0].observation)
    reference.close()
    found, expected = case.found(steps=PICTURE_STEPS), case.expected(steps=PICTURE_STEPS, envs=1)
    for env_id, rows in expected.items():
        for one, other in zip(found[env_id], rows):  # noqa: B905 - Python 3.10, and of equal length
            if any(same(field, other, one) == "different" for field in ("rewards", "terminated", "truncated")):
                return None
    if shown is None:
        return "other observations: rewards and ends agree"
    return "another picture: rewards and ends agree, so it is resized, cropped or coloured in another way"


def _sees(one: Row, other: Row) -> bool:
    return bool(np.array_equal(one.observation, other.observation))


def _alike(one: Row, other: Row) -> bool:
    return _sees(one, other) and one[1:] == other[1:]


def _all_alike(one: dict[int, list[Row]], other: dict[int, list[Row]]) -> bool:
    return all(
        _alike(first, second)
        for env_id in one
        for first, second in zip(one[env_id], other[env_id])  # noqa: B905 - Python 3.10, and of equal length
    )


def _ends_near(rows: list[Row], at: int) -> bool:
    return rows[at].ended or rows[at - 1].ended


HYPOTHESES = (
    miscounted_frames,
    end_not_reported,
    no_reset,
    other_autoreset,
    clipped_rewards,
    one_row_for_all,
    ids_swapped,
    stale,
    faulty_variant,
    actions_ignored,
    chance,
    frame_skip,
    picture,
)
