"""No environments at all: what the measuring loop itself costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, NothingToReceiveError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup


class Null:
    """Returns the same zeros at once, float64 rewards among them."""

    def __init__(self, setup: Setup) -> None:
        count = setup.batch_size
        flags = np.zeros(count, np.bool_)
        self._batch = Batch(np.zeros((count, 1), np.float32), np.zeros(count), flags, flags, np.arange(count))
        self._answer: Batch | None = None
        self.info = BackendInfo(
            num_envs=count,
            batch_size=count,
            action_space=ActionSpace.discrete(2),
            frame_skip=setup.task.frame_skip,
            reuses_buffers=True,
            differences=(Difference("there is no environment"),),
        )

    def reset(self, seed: int) -> None:  # noqa: ARG002 - nothing here is random
        """Get ready to answer."""
        self._answer = self._batch

    def send(self, actions: NDArray[np.generic]) -> None:  # noqa: ARG002 - no environment takes them
        """Get ready to answer."""
        self._answer = self._batch

    def recv(self) -> Batch:
        """Return the rows."""
        answer, self._answer = self._answer, None
        if answer is None:
            raise NothingToReceiveError
        return answer

    def close(self) -> None:
        """Stop answering."""
        self._answer = None
