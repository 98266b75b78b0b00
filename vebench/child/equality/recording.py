"""Writes and reads the rows of a backend as a file of records, checks the form of batches, and compares rows.

The process that steps the backend writes records. Another process reads and compares them. A recording begins with
``About``. Each ``Began`` opens a history: the backend was reset. The batches of a history are numbered from 0, the rows
of the reset. The actions before batch ``number`` are the tape's batch ``(tape_at + number - 1) % len(tape)``. They are
for the environments of batch ``number - 1``, in the order of its rows. ``Acted`` holds actions of a policy instead.
``Order`` says which environments are in which batch, unless the adapter declares ``in_order`` or every batch is
recorded. ``Rows`` is one recorded batch. ``Ended`` is the last record.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.batched.arrays import to_host
from vebench.backends.interface import ArrayTree, BackendInfo

FIRST = 10  # batches after a cell's reset that are recorded with all environments that fit in memory
NO_ROW = -1  # stands for an id that is missing, because the batch has fewer rows than others
CHANGED = "change after recv() returned them"
OUT_OF_ORDER = "environments are not in the order of their ids, although the adapter declares that they are"
# The kinds of dtype that each field of a batch may have, and their name in messages.
_NUMBERS = {
    "observations": ("biuf", "flags or numbers"),
    "rewards": ("fiu", "numbers"),
    "terminated": ("b", "bool"),
    "truncated": ("b", "bool"),
    "env_ids": ("iu", "whole numbers"),
}
PATIENCE_S = 20.0  # seconds after which a silent environment (see ``LastSeen``) counts as left behind


@dataclass(frozen=True)
class About:
    """The backend's description of itself, and the seed of its actions."""

    info: BackendInfo
    tape_seed: int


@dataclass(frozen=True)
class Began:
    """The backend was reset with ``seed``. The next batch is number 0."""

    seed: int
    tape_at: int = 0  # the batch of the tape that comes next


@dataclass(frozen=True)
class Acted:
    """Further actions since the reset that are not the tape's."""

    batches: Sequence[ArrayTree]  # each ``(rows, *action_shape)``


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
    frames: NDArray[np.integer] | None = None  # (num_envs,): the backend's count of frames in each one's episode
    ends: NDArray[np.integer] | None = None  # (num_envs,): the ends that each environment reported in this history


@dataclass(frozen=True)
class Ended:
    """The last record."""

    fault: str = ""  # how the backend broke the interface, or failed at the end; empty if it did not
    chosen: tuple[int, ...] = ()  # random environments of a cell, if batches have the rows that are ready first


Record = About | Began | Acted | Order | Rows | Ended


class CutOffError(Exception):
    """The recording lacks something that a comparison needs. The text names it."""


def write(file: IO[bytes], record: Record) -> None:
    """Append a record to a file, in one call. Raises OSError if it cannot be written."""
    # Stacks of images shrink to a tenth. numpy 1.26 cannot read later protocols of numpy 2.
    data = zlib.compress(pickle.dumps(record, protocol=4), 1)
    file.write(len(data).to_bytes(8, "big") + data)


def read_records(path: str) -> Iterator[Record]:
    """Yield the records of a file. ``Ended`` is missing if the recording ends early or is damaged."""
    with open(path, "rb") as file, suppress(Exception):  # pickle may raise anything
        while size := int.from_bytes(file.read(8), "big"):
            record: Record = pickle.loads(zlib.decompress(file.read(size)))  # noqa: S301 - of the same user
            yield record
            if isinstance(record, Ended):
                return


class BrokenInterfaceError(ValueError):
    """The backend breaks the interface. The text names the fault."""


def on_host(batch: Sequence[Any], info: BackendInfo) -> Sequence[Any]:
    """Return a batch whose arrays are on the host. Rows that stay on a device are copied from there."""
    return tuple(map(to_host, batch)) if info.on_device else batch


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
    access, after the measurement. Arrays that stay on a device are copied from there.
    """
    try:
        arrays = dict(zip(_NUMBERS, on_host(batch, info), strict=True))
    except (TypeError, ValueError):
        return f"recv() returns a {type(batch).__name__} that does not have the fields {', '.join(_NUMBERS)}"
    observations = arrays.pop("observations")
    if (odd := _odd_tree("observations", observations)) is not None:
        return odd
    arrays = {**dict(trees.named_leaves(observations, "observations")), **arrays}
    wrong = next(filter(None, (_odd_array(name, array) for name, array in arrays.items())), None)
    if wrong is not None:
        return wrong
    most, fewest = info.batch_size, info.batch_size if info.fewest_rows is None else info.fewest_rows
    ids = arrays["env_ids"].tolist()
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if set(lengths.values()) != {len(ids)} or not fewest <= len(ids) <= most:
        counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
        size = str(most) if fewest == most else f"{fewest} to {most}"
        return f"rows were counted but not returned: {counts}, in a batch of {size}"
    if len(set(ids)) != len(ids):
        return f"the same row twice in a batch: environment {Counter(ids).most_common(1)[0][0]}"
    return None if set(ids) <= set(range(info.num_envs)) else f"env_ids {sorted(ids)} outside 0..{info.num_envs - 1}"


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


def out_of_order(env_ids: NDArray[np.integer], num_envs: int) -> bool:
    """Return whether ``env_ids`` differ from all ids in ascending order."""
    return not np.array_equal(env_ids, np.arange(num_envs))


def changed(before: BackendInfo, now: BackendInfo) -> str | None:
    """Return how a backend's description of itself has changed while it ran, None if it has not."""
    sizes = "num_envs", "batch_size", "fewest_rows", "frame_skip"
    for name in (*sizes, "autoreset", "reuses_buffers", "differences", "action_space"):
        one, other = getattr(before, name), getattr(now, name)
        if repr(one) != repr(other):
            return f"changes its {name} while it runs: {other} instead of {one}"
    return None


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
        """Return the number of batches without an answer of each environment that is silent now.

        An environment is silent after 1000 such batches, plus 50 times the mean number of batches for one answer.
        """
        usual = (self._last + 1) / np.maximum(1, self._rows)
        since = self.batches - 1 - self._last
        return {int(env_id): int(since[env_id]) for env_id in np.flatnonzero(since > 1000 + 50 * usual)}


def left_behind(env_id: int, batches: int) -> str:
    """Return in words the fault of an environment that has not answered for this many batches."""
    return f"environment {env_id} is left behind: no answer in the last {batches:,} batches and {PATIENCE_S:g} s"


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed difference of numbers: absolute, relative to the first, or in units in the last place (ulps)."""

    absolute: float = 0.0
    relative: float = 0.0
    ulps: int = 0
    steps: int | None = None  # Later steps of an episode are not compared, because physics may be chaotic.

    def allows(self, one: NDArray[Any], other: NDArray[Any]) -> bool:
        """Return whether all numbers are within the limit. Equal numbers and pairs of NaN always are."""
        kind = one.dtype if one.dtype.kind == "f" else np.dtype(np.float64)
        spacing = np.abs(np.spacing(np.abs(one).astype(kind))).astype(np.float64)
        size = np.abs(one.astype(np.float64))
        room = np.maximum(np.maximum(self.absolute, self.relative * size), self.ulps * spacing)
        gap = _gaps_between(one, other)
        return bool(np.all((gap == 0) | (gap <= room)))


class Gap(NamedTuple):
    """A field in which two rows differ, with both values in words."""

    field: str  # ``rewards``, ``terminated``, ``truncated``, ``observations/LEAF`` or ``infos/KEY``
    expected: str
    found: str
    size: float | None = None  # the largest absolute difference, None if it is not finite
    how_many: str = ""  # how many numbers differ, in words


@dataclass
class Comparer:
    """Compares values, and counts casts and uses of limits. One side may round a reward to float32."""

    limits: Mapping[str, Tolerance] = field(default_factory=dict)  # by field, or by the parent field of leaves
    may_cast: bool = False  # whether arrays may have different types
    casts: Counter[str] = field(default_factory=Counter)  # number of values that were equal after a cast, by cast
    furthest: dict[str, float] = field(default_factory=dict)  # the largest distance within a limit, by field
    skipped: int = 0  # arrays not compared, because they came after the last step of their limit

    def gaps(self, values: Iterable[tuple[str, Any, Any]], age: int = 0) -> Iterator[Gap]:
        """Yield the gaps in ``values``, ``(field, expected, found)``, of a row ``age`` steps after a reset."""
        arrays = np.ndarray, np.generic  # a row of a batch of numbers is a scalar
        for name, one, other in values:
            if one is None or other is None:
                if one is not other:
                    words = ["nothing" if value is None else "a value" for value in (one, other)]
                    yield Gap(name, words[0], words[1])
            elif name == "rewards":
                yield from self._rewards(one, other, age)
            elif isinstance(one, arrays) and isinstance(other, arrays):
                yield from self._arrays(name, np.asarray(one), np.asarray(other), age)
            elif type(one) is not type(other) or one != other:
                yield Gap(name, str(one)[:60], str(other)[:60])

    def _rewards(self, one: float, other: float, age: int) -> Iterator[Gap]:
        if one == other or (isnan(one) and isnan(other)):
            return
        with np.errstate(over="ignore"):
            rounded = one == float(np.float32(other)) or other == float(np.float32(one))
        if rounded:
            self.casts["rewards as float32"] += 1
        elif not self._is_near("rewards", np.asarray(one), np.asarray(other), age):
            size = abs(one - other)
            yield Gap("rewards", repr(one), repr(other), size if isfinite(size) else None)

    def _arrays(self, name: str, one: NDArray[Any], other: NDArray[Any], age: int) -> Iterator[Gap]:
        if one.shape != other.shape or (one.dtype != other.dtype and not self.may_cast):
            yield Gap(name, f"{one.dtype}{one.shape}", f"{other.dtype}{other.shape}")
            return
        if one.dtype == other.dtype and one.tobytes() == other.tobytes():
            return
        if (self.may_cast and self._is_cast(name, one, other)) or self._is_near(name, one, other, age):
            return
        gap = _gaps_between(one, other)
        index = np.unravel_index(int(np.argmax(gap)), gap.shape)
        at = f" at {list(map(int, index))}" if index else ""
        count = f"{np.count_nonzero(gap):,} of {gap.size:,} numbers differ" if gap.size > 1 else ""
        size = float(gap[index])
        yield Gap(name, f"{one[index]}{at}", f"{other[index]}{at}", size if isfinite(size) else None, count)

    def _is_cast(self, name: str, one: NDArray[Any], other: NDArray[Any]) -> bool:
        """Return whether the arrays are equal after a cast from the wider to the narrower type. Count the cast."""
        narrow, wide = sorted((one.dtype, other.dtype), key=lambda kind: kind.itemsize)
        if narrow.kind != wide.kind:  # a cast to integers would lose the digits after the point
            narrow = np.result_type(narrow, wide)
        with np.errstate(all="ignore"):
            same = np.array_equal(one.astype(narrow), other.astype(narrow), equal_nan=narrow.kind in "fc")
        exact = name.startswith("infos/") and np.array_equal(one, other)
        if same and narrow != wide and not exact:
            self.casts[f"{name} as {narrow}"] += 1
        return bool(same)

    def _is_near(self, name: str, one: NDArray[Any], other: NDArray[Any], age: int) -> bool:
        """Return whether a limit allows the distance of two arrays, or excludes them from comparison."""
        limits = (limit for of, limit in self.limits.items() if name == of or name.startswith(f"{of}/"))
        limit = next(limits, None)
        if limit is None:
            return False
        if limit.steps is not None and age > limit.steps:
            self.skipped += 1
            return True
        if not limit.allows(one, other):
            return False
        self.furthest[name] = max(float(_gaps_between(one, other).max()), self.furthest.get(name, 0.0))
        return True


def _gaps_between(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Return the absolute differences of two arrays: 0 for pairs of NaN, infinity where a difference is not finite."""
    equal = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124 - NaN, of any type
    with np.errstate(all="ignore"):
        gap = np.abs(one.astype(np.float64) - other.astype(np.float64))
    found: NDArray[np.float64] = np.where(equal, 0.0, np.nan_to_num(gap, nan=np.inf, posinf=np.inf))
    return found
