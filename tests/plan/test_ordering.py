"""The order in which reports list cells."""

from __future__ import annotations

from vebench.plan.cells import report_order
from vebench.plan.spec import BackendChoice, RunSpec


def in_order(spec: RunSpec, *cells: tuple[str, BackendChoice]) -> list[tuple[str, str]]:
    return [(env, backend.label) for env, backend in sorted(cells, key=lambda cell: report_order(*cell, spec))]


def test_tasks_come_as_asked_for_and_others_after_them() -> None:
    spec = RunSpec(("Pong", "Ant"), (1,))
    loop = BackendChoice("for-loop")
    envs = ("Own-v0", "Ant-v5", "ALE/Pong-v5")
    assert [env for env, _ in in_order(spec, *((env, loop) for env in envs))] == ["ALE/Pong-v5", "Ant-v5", "Own-v0"]


def test_third_parties_come_after_the_table_and_reference_rows_last() -> None:
    names = ("null", "ceiling", "mine:Fast", "envpool-sync", "for-loop")
    cells = [("Ant-v5", BackendChoice(name)) for name in names]
    backends = [label for _, label in in_order(RunSpec(("Ant",), (1,)), *cells)]
    assert backends == ["for-loop", "envpool-sync", "mine:Fast", "ceiling", "null"]


def test_one_backend_with_several_options_comes_as_asked_for() -> None:
    choices = tuple(BackendChoice("envpool-async", {"ratio": ratio}) for ratio in (8, 2, 4))
    listed = in_order(RunSpec(("Ant",), (1,), choices), *(("Ant-v5", choice) for choice in reversed(choices)))
    assert [label for _, label in listed] == [choice.label for choice in choices]
