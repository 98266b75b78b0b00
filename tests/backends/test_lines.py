"""The lines of Python that a report gives to paste: they run, and build what was measured."""

import ast
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import driving
from support.pasting import BATCHES, OWN, PASTED, TASKS, built, check, task_of

from vebench.backends.entry import BackendEntry
from vebench.backends.environments.making import make, read_spaces, sample
from vebench.backends.environments.suites import load_target
from vebench.backends.interface import Setup, Task
from vebench.backends.registry import BY_NAME, ENTRIES

# EnvPool's own spaces of CartPole.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")

CARTPOLE, CHEETAH, PONG = TASKS
REGISTERED = Task("odd/Observes-box-v0", "gymnasium", 1, module="odd")
SHORT = Task("CartPole-v1[max_episode_steps=9,sutton_barto_reward=true]", "classic", 1)
BATCHED = Task("batched:honest[kind=bare]", "vectors", 1)
CALLED = Task("odd:Counter[length=4,observation=box]", "callable", 1)


def lines_of(name: str, task: Task, workers: int = 2, **options: bool | int | str) -> tuple[str, ...]:
    return BY_NAME[name].lines(built(BY_NAME[name], task, workers, **options))


def run(lines: tuple[str, ...]) -> Any:
    """Run lines as a script does, and return what they are there for."""
    script: dict[str, Any] = {"__name__": "__main__"}
    multiprocessing.set_start_method("fork", force=True)  # Python 3.14's default needs a file to import
    exec("\n".join(lines), script)  # noqa: S102 - that is what people do with them
    return script["envs"]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("entry", "task", "options"),
    [
        *((entry, None, {}) for entry in PASTED if entry.library.installation is None),
        *((BY_NAME[name], OWN, {}) for name in ("for-loop", "gym-sync", "gym-async", "shm-sync", "shm-async")),
        *((BY_NAME[name], BATCHED, {}) for name in ("native", "gym-sync")),
        (BY_NAME["gym-async"], CARTPOLE, {"max_concurrency": 1, "context": "fork"}),
        (BY_NAME["shm-sync"], CARTPOLE, {"spin": 0, "caller_steps": False}),
        (BY_NAME["shm-sync"], CARTPOLE, {"spares": 1}),
        (BY_NAME["fast-sync"], PONG, {"compiled": False}),
    ],
    ids=lambda value: value.name if isinstance(value, BackendEntry) else getattr(value, "id", str(value)),
)
def test_the_lines_step_what_was_promised(entry: BackendEntry, task: Task | None, options: dict[str, int]) -> None:
    task = task or task_of(entry)
    shape = (1, 1) if task == PONG else (2, 2)  # games load long
    planned = built(entry, task, *shape, **options)
    counted = driving.counted(run(entry.lines(planned)), batches=BATCHES, num_envs=planned.num_envs)
    # A row of Gymnasium's that only tells of a reset is no step.
    check(counted, planned, ends=entry.name != "for-loop" if task == OWN else None)


@pytest.mark.parametrize("task", [CARTPOLE, CHEETAH, REGISTERED, SHORT, CALLED], ids=lambda task: task.id)
def test_the_environments_are_those_that_were_measured(task: Task) -> None:
    (pasted,) = run(lines_of("for-loop", task, workers=1))
    measured = make(task)
    assert (pasted.observation_space, pasted.action_space) == (measured.observation_space, measured.action_space)
    # What every backend gives them: MuJoCo's compute in the type of an action's array.
    taken = read_spaces(task, measured.observation_space, measured.action_space).actions
    actions = sample(taken, 0, 20)
    rows = [environment.reset(seed=3)[0] for environment in (pasted, measured)]
    np.testing.assert_array_equal(*rows)
    for action in actions:
        one, other = (environment.step(action) for environment in (pasted, measured))
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:4] == other[1:4]
        if one[2] or one[3]:
            break
    pasted.close()
    measured.close()


@pytest.mark.parametrize(
    ("name", "task"),
    [("shm-sync", PONG), ("fast-sync", Task("ALE/Backgammon-v5", "atari", 4)), ("fast-sync", CHEETAH)],
    ids=str,
)
def test_the_lines_build_the_measured_vector_environment(name: str, task: Task) -> None:
    lines = lines_of(name, task)
    envs = run(lines)
    adapter = load_target(BY_NAME[name].target)(Setup(task, workers=2, cpus=(0, 1)))
    adapter.reset(5)
    observations, _ = envs.reset(seed=5)
    np.testing.assert_array_equal(observations, adapter.recv().observations)
    assert observations.flags.writeable != any("read-only" in line for line in lines)
    own = adapter.info.own_classes
    assert getattr(envs, "stepped_by", None) == (own and own.words)
    envs.action_space.seed(0)
    for _ in range(4):
        actions = envs.action_space.sample()
        adapter.send(actions)
        observations, rewards, *_ = envs.step(actions)
        batch = adapter.recv()
        np.testing.assert_array_equal(observations, batch.observations)
        # An adapter takes actions of float64, and what they cost is reckoned in their own precision.
        np.testing.assert_allclose(rewards, batch.rewards, rtol=1e-6)
    envs.close()
    adapter.close()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_backend_to_choose_has_lines_that_fit_a_terminal(entry: Any) -> None:
    for task in (CARTPOLE, PONG, CHEETAH):
        lines = lines_of(entry.name, task)
        assert bool(lines) or entry.reference_row or not (entry.by_default and entry.has(task))
        assert not (lines and entry.reference_row)
        assert max(map(len, lines), default=0) <= 60
        ast.parse("\n".join(lines))


def calls_in(lines: tuple[str, ...], name: str) -> list[ast.Call]:
    """Return the calls of a function in lines of Python that are all in ASCII, and can be printed."""
    assert all(line.isascii() and line.isprintable() for line in lines)
    nodes = ast.walk(ast.parse("\n".join(lines)))
    return [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name)]


def test_names_from_outside_stay_texts() -> None:
    evil = Task("a\"); import os; os.system('x')\n\u202e\x1b[31m-v0", "gymnasium", 1)
    (call,) = calls_in(lines_of("gym-sync", evil), "make")
    assert isinstance(call.args[0], ast.Constant)
    assert call.args[0].value == evil.id
    arguments = Task("Foo-v0[class=1,size=2,\u0430=os.system('x')]", "gymnasium", 1)
    (call,) = calls_in(lines_of("gym-sync", arguments), "make")
    given = {each.arg or ast.unparse(each.value): ast.unparse(each.value) for each in call.keywords}
    assert given.pop("disable_env_checker") == "True"
    assert given.pop("size") == "2"
    assert {key: ast.literal_eval(value) for key, value in given.items()} == {
        "{'class': 1}": {"class": 1},
        "{'\u0430': \"os.system('x')\"}": {"\u0430": "os.system('x')"},
    }
    assert lines_of("gym-sync", Task("os:system('x');f", "callable", 1)) == ()
