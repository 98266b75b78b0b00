"""What the methods of ``SharedMemoryVectorEnv`` return, and infos in the form of Gymnasium's vector environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium.vector import VectorEnv

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.shared_memory.gymnasium_share import Info

    # Observations and infos; observations, rewards, terminations, truncations and infos.
    Reset = tuple[Any, dict[str, Any]]
    Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class Received(NamedTuple):
    """The environments that ``recv`` returns: a row for each, and ``infos`` in Gymnasium's form with as many rows."""

    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: NDArray[np.int64]


def batch_infos(count: int, infos: Iterable[tuple[int, Info]]) -> dict[str, Any]:
    """Return infos, each given with its row, as one dict of arrays with ``count`` rows, and a mask for each array."""
    form: VectorEnv[Any, Any, Any] = VectorEnv()
    form.num_envs = count
    batched: dict[str, Any] = {}
    for row, info in infos:
        batched = form._add_info(batched, info, row)  # noqa: SLF001 - what defines that form
    return batched


def infos_of(remarks: Iterable[list[tuple[int, Info]] | None]) -> Iterable[tuple[int, Info]]:
    """Return the infos of all shares, each with the id of its environment, from what each share has returned."""
    return (pair for remark in remarks if remark for pair in remark)
