"""Our own classes return Gymnasium's bytes: a thin slice of what ``tools/fast_survey.py`` compares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("ale_py")
pytest.importorskip("cv2")
pytest.importorskip("mujoco")

from support.same_bytes import compare
from support.same_bytes_cases import cases_of, made_case

from vebench.plan.tasks import TASKS

if TYPE_CHECKING:
    from vebench.backends.fast.share import FastTask

# A game with lives; tasks that do and do not terminate.
SLICE = {
    "Breakout": ("life losses, last frames",),
    "HalfCheetah": ("float32 actions", "7 steps an episode, SameStep"),
    "Hopper": ("benchmark", "7 steps an episode, Disabled"),
    "InvertedPendulum": ("both ends at once",),
}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in SLICE.items() for case in cases])
def test_a_class_of_our_own_returns_gymnasiums_bytes(name: str, case: str) -> None:
    (asked,) = (each for each in cases_of(TASKS[name], scale=0.1) if each.name == case)

    found = compare(asked)

    assert found.difference == ""
    assert found.rows > asked.steps


def test_one_wrong_byte_is_found() -> None:
    case = made_case("a wrong byte", TASKS["Hopper"], 20, {})

    def wrong(*, compiled: bool) -> FastTask:
        task: Any = case.ours(compiled=compiled)
        build = task.batch

        def batch(rows: Any, area: Any) -> Any:  # noqa: ANN401 - as the task's own
            built = build(rows, area)
            step = built.step

            def stepped(resting: Any) -> Any:  # noqa: ANN401 - likewise
                ended = step(resting)
                rows.observations[0].view("u1")[1, -1] ^= 1
                return ended

            return _With(built, step=stepped)

        return _With(task, batch=batch)

    found = compare(replace(case, ours=wrong))

    assert found.difference.startswith("a wrong byte, compiled, step 1: observations[1, 10] is ")
    assert found.difference.endswith("1 of 22 values differ")


class _With:
    """An object with some attributes in place of its own."""

    def __init__(self, one: object, **others: object) -> None:
        self._one = one
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self._one, name)
