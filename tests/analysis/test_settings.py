"""Which settings ``vebench tune`` tries, and in which order."""

from __future__ import annotations

from vebench.analysis.tuning import settings
from vebench.plan.grammar import parse_backends


def places(*names: str, cpus: int = 8, batch: int | None = None, cores: int | None = None) -> list[str]:
    return [one.place for one in settings(parse_backends(names), cpus, batch, cores)]


def test_where_cpus_are_second_threads_a_worker_for_each_core_is_tried() -> None:
    assert {place.split(":")[1] for place in places("gym-async", cpus=12, cores=8)} >= {"12x1", "8x1", "6x1"}
    assert not [place for place in places("gym-async", cpus=12, cores=12) if ":8x" in place]


def test_options_that_may_be_faster_are_tried_after_the_defaults_and_with_all_cpus_only() -> None:
    tried = places("shm-async")
    others = [place for place in tried if "[ratio=3]" in place]
    assert tried[-len(others) :] == others
    assert sorted(others) == ["shm-async[ratio=3]:8x1", "shm-async[ratio=3]:8x16", "shm-async[ratio=3]:8x4"]


def test_where_the_user_gave_options_no_others_are_tried() -> None:
    assert all(place.startswith("shm-async[ratio=4]:") for place in places("shm-async[ratio=4]"))


def test_every_setting_has_the_batch_that_was_asked_for() -> None:
    assert set(places("shm-async", batch=16)) == {
        *("shm-async:8x2", "shm-async:4x4", "shm-async:2x8", "shm-async:1x16"),
        "shm-async[ratio=3]:8x2",
    }


def test_more_workers_than_one_are_of_no_use_to_a_loop() -> None:
    assert set(places("for-loop")) == {"for-loop:1x1", "for-loop:1x4", "for-loop:1x16"}
