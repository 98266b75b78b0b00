"""The networks that act, where torch is installed: their actions are in the space, and of its type."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace
from vebench.child.actions import parse_policy

pytest.importorskip("torch", reason="needs torch: make test-all")

VECTOR, PICTURE = np.zeros((5, 17)), np.zeros((5, 4, 84, 84), np.uint8)
DISCRETE = ActionSpace.discrete(6)
MANY = ActionSpace(np.zeros(3, np.int64), np.array([1, 2, 4]))
BOX = ActionSpace(np.full(6, -0.4, np.float32), np.full(6, 0.4, np.float32))
OPEN = ActionSpace(np.full((2, 2), -np.inf, np.float32), np.full((2, 2), np.inf, np.float32))


def acted(name: str, space: ActionSpace, observations: NDArray[np.generic], seed: int = 3) -> object:
    from vebench.child.actions import make_policy

    policy = make_policy(parse_policy(name), space, observations, seed, [])
    return policy.download(policy.infer(policy.upload(observations)))


@pytest.mark.parametrize("space", [DISCRETE, MANY, BOX, OPEN])
@pytest.mark.parametrize(
    ("name", "observations"),
    [("mlp:8x8", VECTOR), ("nature-cnn", PICTURE), ("mlp:4", PICTURE)],
)
def test_actions_are_in_the_space(name: str, observations: NDArray[np.generic], space: ActionSpace) -> None:
    actions = np.asarray(acted(name, space, observations))
    assert (actions.shape, actions.dtype) == ((5, *space.low.shape), space.low.dtype)
    assert ((actions >= space.low) & (actions <= space.high)).all()


def test_observations_that_must_not_be_written_to_or_are_turned_are_taken() -> None:
    turned = np.zeros((17, 5)).T[::-1]
    turned.flags.writeable = False
    assert np.asarray(acted("mlp:8[precision=bf16]", DISCRETE, turned)).shape == (5,)


def test_pictures_are_what_nature_cnn_takes() -> None:
    with pytest.raises(ValueError, match=r"not observations of shape \(17,\): use mlp:64x64"):
        acted("nature-cnn", DISCRETE, VECTOR)


def test_a_device_that_is_not_there_is_said() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ValueError, match="sees no CUDA device here"):
        acted("mlp:8[device=cuda]", DISCRETE, VECTOR)
