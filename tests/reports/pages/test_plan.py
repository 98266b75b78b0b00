"""What ``--dry-run`` shows."""

import pytest
from support.pages import on_terminal, table_of

from vebench.backends.interface import Task
from vebench.machine.host import place
from vebench.plan.cells import Plan, Where, expand
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.reports.overview import plan_page

TASKS = (Task("ALE/Pong-v5", "atari", 4), Task("Own-v0", "gymnasium", 1))


def shown(plan: Plan) -> str:
    return on_terminal(plan_page(plan), 80)


@pytest.fixture
def planned() -> str:
    backends = tuple(map(BackendChoice, ("for-loop", "envpool-async", "envpool-sync", "ceiling")))
    spec = RunSpec(("Pong", "Own-v0"), (1, 4), backends, passes=2)
    return shown(expand(spec, TASKS, Where(place("compact", frozenset({0, 1})))))


def test_a_plan_shows_each_cell_with_its_layout_and_cpus_once(planned: str) -> None:
    pool = [line.split() for line in planned.splitlines() if line.startswith("envpool-async ")]
    assert pool == [
        ["envpool-async", "1", "3", "(1", "a", "batch)", "1", "x", "1", "0", "-"],
        ["envpool-async", "4", "12", "(4", "a", "batch)", "1", "x", "2", "0-1", "-"],
    ]
    bare = [line.split() for line in planned.splitlines() if line.startswith("ceiling ")]
    assert bare[1] == ["ceiling", "4", "2", "2", "x", "1", "0-1", "-"]


def test_a_plan_shows_what_is_skipped_and_why_and_how_long_the_rest_takes(planned: str) -> None:
    assert "skipped: envpool-sync, envpool-async at 1, 4 workers: EnvPool has no Own-v0" in " ".join(planned.split())
    # Pong on 4 backends, Own-v0 on 1 and 2 skipped, without ``ceiling``; each at 2 worker counts, twice, for 7 seconds.
    assert "20 cells in 2 passes, 4 skipped" in planned
    assert "about 3 min 30 s, with 24 s to start cells" in planned
    assert planned.index("ALE/Pong-v5") < planned.index("\nOwn-v0")


def test_a_plan_with_a_wanted_precision_says_how_long_passes_are_added() -> None:
    spec = RunSpec(("Pong",), interleave=True, passes=3, until=0.02, budget=5.0)
    (document,) = plan_page(expand(spec, TASKS[:1], Where(place("compact", frozenset({0}))))).documents
    (answer,) = document.answers
    assert "Passes are added until intervals are within ±2%, at most until 5 s after the start." in answer.sentences


def test_a_plan_says_why_it_has_a_cell_that_was_not_asked_for() -> None:
    spec = RunSpec(("Pong",), (4,), (BackendChoice("gym-sync"),), base=True)
    table = table_of(plan_page(expand(spec, TASKS[:1], Where(place("compact", frozenset({0, 1}))))))
    assert [row.label for row in table.rows] == ["for-loop", "gym-sync", "yardstick"]
    assert table.notes == ("added to compare with: for-loop and yardstick with one worker; --no-base leaves them out",)


def test_a_plan_names_sizes_by_workers_and_their_environments() -> None:
    spec = RunSpec(("Own-v0",), (1, 2, 4), tuple(map(BackendChoice, ("gym-sync", "envpool-sync"))), (1, 8))
    table = table_of(plan_page(expand(spec, TASKS[1:], Where(place("compact", frozenset({0, 1}))))))
    assert [row.texts[0].lines[0] for row in table.rows] == ["1", "1 x 8 envs", "2", "2 x 8 envs", "4", "4 x 8 envs"]
    (note,) = table.notes
    assert note.startswith("skipped: envpool-sync at 1..4 workers: ")
