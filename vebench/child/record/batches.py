"""What every batch of a backend must be, whatever its values are: checked in the process that steps the backend."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.child.record.recording import PLAIN, About

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import BackendInfo

CHANGED = "change after they were handed out"
OUT_OF_ORDER = "environments are not in the order of their ids, though it declares that they always are"
NAMES = ("observations", "rewards", "terminated", "truncated", "env_ids")
# The kinds of numbers that a field may have, and their name in messages.
_KINDS = {
    "observations": (PLAIN, "flags or numbers"),
    "rewards": ("fiu", "numbers"),
    "terminated": ("b", "bool"),
    "truncated": ("b", "bool"),
    "env_ids": ("iu", "whole numbers"),
}
# What a backend reports about itself must not change.
_CONSTANT = (
    *("num_envs", "batch_size", "fewest_rows", "frame_skip", "autoreset", "reuses_buffers"),
    *("differences", "action_form", "low", "high"),
)


class BrokenInterfaceError(ValueError):
    """A batch breaks the interface, by this ``fault``."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"recv() breaks the interface: {fault}")
        self.fault = fault


def is_plain(batch: Sequence[Any]) -> bool:
    """Return whether all arrays of a batch are NumPy's own, and none of a subclass."""
    observations, *others = batch
    if _odd_tree("observations", observations) is not None:
        return False
    return all(type(array) is np.ndarray for array in (*trees.leaves(observations), *others))


def _odd_tree(name: str, tree: Any) -> str | None:  # noqa: ANN401 - whatever was returned
    """Return what is wrong with the form of what should be an array, or a dict or tuple of such; None if nothing is."""
    if trees.is_leaf(tree):
        return None
    kind = type(tree).__name__
    problem = None
    if type(tree) not in (dict, OrderedDict, tuple):
        problem = f"{name} are a {kind}, not a dict or tuple: what is made only on access is not measured"
    elif isinstance(tree, dict) and not all(type(key) is str for key in tree):
        problem = f"{name} have keys that are no text"
    elif not tree:
        problem = f"{name} are an empty {kind}"
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return problem or next(filter(None, (_odd_tree(f"{name}/{key}", part) for key, part in parts)), None)


def malformed(batch: Sequence[Any], num_envs: int, batch_size: int, fewest: int | None = None) -> str | None:
    """Return what is wrong with what ``recv`` has returned, apart from its values; None if nothing is.

    It has ``batch_size`` rows, or from ``fewest`` to as many. ``batch`` is unpacked as the timed loop unpacks it. A
    subclass of ``ndarray`` may compute when somebody looks at it, which would not be measured: a batch may have none.
    """
    try:
        arrays = dict(zip(NAMES, batch, strict=True))
    except (TypeError, ValueError):
        return f"recv() returns a {type(batch).__name__} that does not have the fields {', '.join(NAMES)}"
    observations = arrays.pop("observations")
    if (odd := _odd_tree("observations", observations)) is not None:
        return odd
    arrays = {**dict(trees.named_leaves(observations, "observations")), **arrays}
    wrong = next(filter(None, (_odd_array(name, array) for name, array in arrays.items())), None)
    return wrong or _miscounted(arrays, num_envs, batch_size, batch_size if fewest is None else fewest)


def _odd_array(name: str, array: Any) -> str | None:  # noqa: ANN401 - whatever was returned
    """Return what is wrong with one of the arrays of a batch, apart from its values and length."""
    if type(array) is not np.ndarray:
        return f"{name} are a {type(array).__name__}, not a NumPy array: arrays made only on access are not measured"
    field = name.partition("/")[0]
    kinds, words = _KINDS[field]
    if array.dtype.kind not in kinds:
        return f"{name} are {array.dtype}, not {words}"
    if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        return f"{name} hold bytes that are neither 0 nor 1, so they are no bool"
    if array.ndim != 1 and field != "observations":
        return f"{name} have the shape {array.shape}, not one value for each row"
    return None


def out_of_order(env_ids: NDArray[np.integer], num_envs: int) -> bool:
    """Return whether these are not all environments, in the order of their ids."""
    return not np.array_equal(env_ids, np.arange(num_envs))


def _miscounted(arrays: dict[str, Any], num_envs: int, most: int, fewest: int) -> str | None:
    ids = arrays["env_ids"].tolist()
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items() if name != "env_ids"}
    if set(lengths.values()) != {len(ids)} or not fewest <= len(ids) <= most:
        counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
        size = str(most) if fewest == most else f"{fewest} to {most}"
        return f"rows counted that were not returned: {len(ids)} env_ids, {counts}, in a batch of {size}"
    if len(set(ids)) != len(ids):
        twice = sorted({env_id for env_id in ids if ids.count(env_id) > 1})
        return f"the same row twice in a batch: environment {twice[0]}"
    if not set(ids) <= set(range(num_envs)):
        return f"env_ids {sorted(set(ids))} that are not in 0..{num_envs - 1}"
    return None


def about(
    info: BackendInfo, *, tape_seed: int, constructor_seed: int, in_order: bool = False, frames_from: str | None = None
) -> About:
    """Return the first record of a recording: what the backend reports about itself."""
    own, form = info.own_classes, trees.form(info.action_space)
    bounds = [
        (np.dtype(space.low.dtype).str, np.asarray(space.low).tolist(), np.asarray(space.high).tolist())
        for space in trees.leaves(info.action_space)
    ]
    action_dtype, low, high = bounds[0] if form is None else zip(*bounds, strict=True)
    return About(
        num_envs=int(info.num_envs),
        batch_size=int(info.batch_size),
        frame_skip=int(info.frame_skip),
        autoreset=info.autoreset,
        in_order=in_order,
        tape_seed=tape_seed,
        constructor_seed=constructor_seed,
        action_dtype=action_dtype,
        low=low,
        high=high,
        action_form=form,
        reuses_buffers=bool(info.reuses_buffers),
        differences=tuple((each.text, each.field, each.rows, each.count) for each in info.differences),
        chance=info.chance,
        frames_from=frames_from,
        engines=tuple(asdict(engine) for engine in info.engines),
        own_classes=None if own is None else asdict(own),
        fewest_rows=None if info.fewest_rows is None else int(info.fewest_rows),
    )


def changed(before: About, now: About) -> str | None:
    """Return what of a backend's report about itself has changed while it ran, None if nothing has."""
    for name in _CONSTANT:
        one, other = getattr(before, name), getattr(now, name)
        if one != other and str(one) != str(other):  # bounds may be NaN
            return f"reports another {name} while it runs: {other} instead of {one}"
    return None
