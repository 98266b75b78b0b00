"""Writes and reads the rows of a backend as a file of records, and checks the form of batches.

The process that steps the backend writes records. Another process reads and compares them. A record is a line of JSON,
with the type and shape of each array, and then the arrays' bytes. Large arrays are compressed. A record has no code.

A recording begins with ``About``. Each ``Began`` opens a history: the backend was reset. The batches of a history are
numbered from 0, the rows of the reset. Batch ``number`` answers the tape's batch
``(tape_at + number - 1) % len(tape)``, whose rows are for the environments of batch ``number - 1``, in its order. Where
a policy has acted, ``Acted`` takes the place of the tape. ``Order`` says which environments are in which batch, unless
``About.in_order`` or every batch is recorded. ``Rows`` is one recorded batch. ``Ended`` is the last record.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import prod
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.interface import BackendInfo

if TYPE_CHECKING:
    from vebench.backends.interface import ArrayTree

FIRST = 10  # batches after a cell's reset that are recorded with as many environments as fit
_PACKED_FROM = 1 << 12  # Arrays of at least this many bytes are compressed. Stacks of images shrink to a tenth.
# Fields that may be a dict or tuple of arrays, nested or not.
_TREES = frozenset({"observations", "actions"})
NO_ROW = -1  # stands for an id that is missing, because the batch has fewer rows than others

CHANGED = "change after recv() returned them"
OUT_OF_ORDER = "environments are not in the order of their ids, although the adapter declares that they are"
NAMES = ("observations", "rewards", "terminated", "truncated", "env_ids")
# The kinds of dtype that a field may have, and their name in messages.
_NUMBERS = {
    "observations": ("biuf", "flags or numbers"),
    "rewards": ("fiu", "numbers"),
    "terminated": ("b", "bool"),
    "truncated": ("b", "bool"),
    "env_ids": ("iu", "whole numbers"),
}
# Facts in a backend's description of itself that must not change.
_CONSTANT = (
    *("num_envs", "batch_size", "fewest_rows", "frame_skip", "autoreset", "reuses_buffers"),
    *("differences", "action_form", "low", "high"),
)
# An environment is silent after _SILENT batches without an answer, plus _TIMES_SILENT times the batches that an answer
# of this environment usually takes. It is left behind if it has not answered for PATIENCE_S seconds of steps, either.
_SILENT, _TIMES_SILENT = 1000, 50
PATIENCE_S = 20.0


@dataclass(frozen=True)
class About:
    """The backend's description of itself, with the names of ``BackendInfo``, and the seed of its actions."""

    num_envs: int
    batch_size: int
    frame_skip: int
    autoreset: str
    in_order: bool  # whether the adapter declares that every batch has all environments in the order of their ids
    tape_seed: int
    # The type and bounds of one action; lists with an item for each leaf if there is an ``action_form``.
    action_dtype: Any
    low: Any
    high: Any
    reuses_buffers: bool = False
    differences: tuple[tuple[Any, ...], ...] = ()  # the fields of each ``Difference``
    chance: str | None = None
    frames_from: str | None = None
    engines: tuple[dict[str, Any], ...] = ()
    own_classes: dict[str, Any] | None = None
    fewest_rows: int | None = None
    action_form: Any = None  # of actions that are a dict or tuple (``trees.form``)


@dataclass(frozen=True)
class Began:
    """The backend was reset with ``seed``. The next batch is number 0."""

    seed: int
    tape_at: int = 0  # the batch of the tape that comes next


@dataclass(frozen=True)
class Acted:
    """The actions of a policy since the reset. The actions of a short batch are filled up with zeros."""

    actions: ArrayTree  # (batches, batch_size, *action_shape)


@dataclass(frozen=True)
class Order:
    """The ids of the environments in consecutive batches. A short batch is filled up with ``NO_ROW``."""

    first: int  # the number of the first batch
    env_ids: NDArray[np.integer]  # (batches, batch_size)


@dataclass(frozen=True)
class Rows:
    """One recorded batch."""

    number: int
    env_ids: NDArray[np.integer]  # (rows,)
    rewards: NDArray[np.floating]  # (rows,)
    terminated: NDArray[np.bool_]  # (rows,)
    truncated: NDArray[np.bool_]  # (rows,)
    shown: NDArray[np.integer]  # the rows whose observations are recorded
    observations: ArrayTree  # (len(shown), *observation_shape)
    # Frames in each environment's episode so far, by the backend's own count: (num_envs,), or empty.
    frames: NDArray[np.integer] = field(default_factory=lambda: np.empty(0, np.int64))
    # Ends that each environment has reported in this history: (num_envs,), or empty.
    ends: NDArray[np.integer] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Ended:
    """The last record."""

    fault: str = ""  # how the backend broke the interface, or failed at the end; empty if it did not


Record = About | Began | Acted | Order | Rows | Ended
_KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in (About, Began, Acted, Order, Rows, Ended)}


class CutOffError(Exception):
    """The recording ends early or is damaged, as the text says."""


def write(file: IO[bytes], record: Record) -> None:
    """Append a record to a file, in one call. Raises OSError if it cannot be written."""
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    held = {name: value for name, value in values.items() if name in _TREES or isinstance(value, np.ndarray)}
    body = {name: value for name, value in values.items() if name not in held}
    arrays = [(name, array) for name, tree in held.items() for array in trees.leaves(tree)]
    whole = [array.tobytes() for _, array in arrays]
    parts = [zlib.compress(data, 1) if len(data) >= _PACKED_FROM else data for data in whole]
    kinds = [(name, array.dtype.str, array.shape, len(part)) for (name, array), part in zip(arrays, parts, strict=True)]
    forms = {name: trees.form(tree) for name, tree in held.items() if not trees.is_leaf(tree)}
    head = {"kind": type(record).__name__, "arrays": kinds, "forms": forms}
    file.write(b"".join((json.dumps({**head, **body}).encode(), b"\n", *parts)))


def read_records(file: IO[bytes]) -> Iterator[Record]:
    """Yield the records up to ``Ended``. Raises CutOffError where the recording ends early or is damaged."""
    while True:
        line = file.readline()
        if not line.endswith(b"\n"):
            raise CutOffError("the recording is truncated")
        try:
            body = json.loads(line)
            kind, forms = _KINDS[body.pop("kind")], body.pop("forms", {})
            arrays: dict[str, list[NDArray[np.generic]]] = {}
            for name, dtype, shape, length in body.pop("arrays"):
                data = file.read(length)
                if np.dtype(dtype).itemsize * prod(shape) >= _PACKED_FROM:
                    data = zlib.decompress(data)
                arrays.setdefault(name, []).append(np.frombuffer(data, dtype).reshape(shape))
            for name, leaves in arrays.items():
                body[name] = trees.filled(forms.get(name), leaves)
            record = kind(**body)
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise CutOffError(f"a record that cannot be read: {error}") from None
        yield record
        if isinstance(record, Ended):
            return


class BrokenInterfaceError(ValueError):
    """A batch breaks the interface. The message names the ``fault``."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"recv() breaks the interface: {fault}")


def is_plain(batch: Sequence[Any]) -> bool:
    """Return whether all arrays of a batch are of class ``numpy.ndarray`` itself, not of a subclass."""
    observations, *others = batch
    if _odd_tree("observations", observations) is not None:
        return False
    return all(type(array) is np.ndarray for array in (*trees.leaves(observations), *others))


def _odd_tree(name: str, tree: Any) -> str | None:
    """Return why ``tree`` is neither an array nor a dict or tuple of arrays, None if it is one of them."""
    if trees.is_leaf(tree):
        return None
    kind = type(tree).__name__
    if type(tree) not in (dict, OrderedDict, tuple):
        return f"{name} are a {kind}, not a dict or tuple: lazy values are not supported"
    if isinstance(tree, dict) and not all(type(key) is str for key in tree):
        return f"{name} have keys that are not strings"
    if not tree:
        return f"{name} are an empty {kind}"
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return next(filter(None, (_odd_tree(f"{name}/{key}", part) for key, part in parts)), None)


def malformed(batch: Sequence[Any], info: BackendInfo) -> str | None:
    """Return how the form of a batch breaks the interface, None if it does not.

    A batch is unpacked as the timed loop unpacks it. Subclasses of ``ndarray`` are refused, because they may compute on
    access, after the measurement.
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
    return wrong or _miscounted(arrays, info)


def _odd_array(name: str, array: Any) -> str | None:
    if type(array) is not np.ndarray:
        return f"{name} are a {type(array).__name__}, not a NumPy array: lazy arrays are not supported"
    root = name.partition("/")[0]
    kinds, words = _NUMBERS[root]
    if array.dtype.kind not in kinds:
        return f"{name} are {array.dtype}, not {words}"
    if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        return f"{name} contain bytes other than 0 and 1, so they are not bool"
    if array.ndim != 1 and root != "observations":
        return f"{name} have the shape {array.shape}, not one value for each row"
    return None


def _miscounted(arrays: dict[str, Any], info: BackendInfo) -> str | None:
    most, fewest = info.batch_size, info.batch_size if info.fewest_rows is None else info.fewest_rows
    ids = arrays["env_ids"].tolist()
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items() if name != "env_ids"}
    if set(lengths.values()) != {len(ids)} or not fewest <= len(ids) <= most:
        counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
        size = str(most) if fewest == most else f"{fewest} to {most}"
        return f"rows were counted but not returned: {len(ids)} env_ids, {counts}, in a batch of {size}"
    if len(set(ids)) != len(ids):
        twice = sorted({env_id for env_id in ids if ids.count(env_id) > 1})
        return f"the same row twice in a batch: environment {twice[0]}"
    if not set(ids) <= set(range(info.num_envs)):
        return f"env_ids {sorted(set(ids))} outside 0..{info.num_envs - 1}"
    return None


def out_of_order(env_ids: NDArray[np.integer], num_envs: int) -> bool:
    """Return whether ``env_ids`` differ from all ids in ascending order."""
    return not np.array_equal(env_ids, np.arange(num_envs))


class LastSeen:
    """The last batch in which each environment answered, and its number of answers."""

    def __init__(self, num_envs: int) -> None:
        self.batches = 0
        self._rows = np.zeros(num_envs, np.int64)
        self._last = np.full(num_envs, -1)

    def add(self, env_ids: NDArray[Any]) -> None:
        """Add the ids of the next batches, ``(batches, batch_size)``."""
        numbers = np.arange(self.batches, self.batches + len(env_ids)).repeat(env_ids.shape[1])
        ids = env_ids.ravel()
        there = (ids >= 0) & (ids < len(self._rows))  # other checks find invalid ids
        self._rows += np.bincount(ids[there], minlength=len(self._rows))
        self._last[ids[there]] = numbers[there]
        self.batches += len(env_ids)

    def silent(self) -> dict[int, int]:
        """Return, for each environment that is silent now, the number of batches without an answer."""
        usual = (self._last + 1) / np.maximum(1, self._rows)
        since = self.batches - 1 - self._last
        return {int(env_id): int(since[env_id]) for env_id in np.flatnonzero(since > _SILENT + _TIMES_SILENT * usual)}


def left_behind(env_id: int, batches: int) -> str:
    """Return in words the fault of an environment that has not answered for this many batches."""
    return f"environment {env_id} is left behind: no answer in the last {batches:,} batches and {PATIENCE_S:g} s"


def about(info: BackendInfo, tape_seed: int, frames_from: str | None = None) -> About:
    """Return the record ``About`` of a backend."""
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
        in_order=info.in_order,
        tape_seed=tape_seed,
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
    """Return how a backend's description of itself has changed while it ran, None if it has not."""
    for name in _CONSTANT:
        one, other = getattr(before, name), getattr(now, name)
        if one != other and str(one) != str(other):  # bounds may be NaN
            return f"changes its {name} while it runs: {other} instead of {one}"
    return None
