"""Policies that a user may name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def by_the_pole(observations: NDArray[np.floating]) -> NDArray[np.int64]:
    """Push CartPole's cart to where its pole leans."""
    return (observations[:, 2] > 0).astype(np.int64)


def by_the_camera(observations: dict[str, Any]) -> dict[str, Any]:
    """Move the nested environment's arm by what its camera shows."""
    seen = observations["camera"][:, 0, 0].astype(np.int64) + observations["arm"][1]
    bits = np.stack([seen % 2, seen // 2 % 2], -1)
    return {"grip": seen % 3, "move": np.stack([seen % 2, -(seen % 2)], -1), "dials": (bits, bits)}


def without_a_grip(observations: dict[str, Any]) -> dict[str, Any]:
    """Forget one of its actions."""
    actions = by_the_camera(observations)
    del actions["grip"]
    return actions
