"""The times of an algorithm's updates, where torch is installed."""

from time import perf_counter_ns

import pytest

from vebench.backends.interface import Setup, Task
from vebench.backends.training import ALGORITHMS
from vebench.child.actions import TAPED, parse_policy
from vebench.child.learner import time_updates
from vebench.child.request import Updating

CARTPOLE, PENDULUM = Task("CartPole-v1", "classic", 1), Task("Pendulum-v1", "classic", 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_updates_of_each_algorithm_take_time(algorithm: str) -> None:
    pytest.importorskip("torch", reason="needs torch: make test-all")
    setup = Setup(PENDULUM if algorithm == "sac" else CARTPOLE, 1)
    found = time_updates(setup, Updating(algorithm, 0.01), TAPED, perf_counter_ns)
    assert found.policy == ("mlp:256x256" if algorithm == "sac" else "mlp:64x64")
    assert [len(times) for times in found.update_ns] == [6]
    assert min(found.update_ns[0]) > 0


def test_the_network_of_the_user_is_timed_or_refused() -> None:
    pytest.importorskip("torch", reason="needs torch: make test-all")
    named = parse_policy("mlp:8")
    assert time_updates(Setup(CARTPOLE, 1), Updating("ppo", 0.01), named, perf_counter_ns).policy == "mlp:8"
    unfit = time_updates(Setup(CARTPOLE, 1), Updating("ppo", 0.01), parse_policy("nature-cnn"), perf_counter_ns)
    assert unfit.update_ns == ()
    assert unfit.refusal.startswith("policy nature-cnn takes")


@pytest.mark.parametrize(
    ("algorithm", "task", "refusal"),
    [
        ("dqn", PENDULUM, "DQN needs discrete actions"),
        ("sac", CARTPOLE, "SAC needs continuous actions"),
        ("sac", PENDULUM, ""),
        ("ppo", PENDULUM, ""),
    ],
)
def test_an_algorithm_needs_no_torch_to_refuse_actions(algorithm: str, task: Task, refusal: str) -> None:
    assert time_updates(Setup(task, 1), Updating(algorithm, 0.0), TAPED, perf_counter_ns).refusal == refusal
