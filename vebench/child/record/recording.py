"""What a backend returned, as the judge gets it: a file of records, written by the process that steps the backend.

The judge is another process, which trusts nothing here: a record is a line of JSON with the type and shape of each of
its arrays, and then their bytes, compressed where there are many. There is nothing in it that could run code.

A recording begins with ``About``. Each ``Began`` opens a history: the backend was reset. Its batches are numbered from
0, the rows of the reset; each later one answers a batch of the action tape, in the tape's order: batch ``number`` is
what the environments of batch ``number - 1`` returned, in its order, for the tape's batch
``(tape_at + number - 1) % len(tape)``. Where a policy has acted, ``Acted`` takes the place of the tape: batch
``number`` answers its batch ``number - 1``. Which environments are in which batch is known
without a record if ``About.in_order``, otherwise from ``Order``, or from the batch itself where every batch is
recorded. ``Rows`` is one recorded batch. ``Ended`` is the last record; a file without one was cut off.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, fields
from math import prod
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree

# What a record may take: its line of JSON holds a few names and counts, its arrays the rows of one batch.
_MOST_LINE, MOST_BYTES = 1 << 20, 1 << 32
_PACKED_FROM = 1 << 12  # bytes of an array from which on it is compressed: stacks of pictures shrink to a tenth
# Fields that may be a dict or tuple of arrays, nested or not.
_TREES = frozenset({"observations", "actions"})
# Flags, integers and floating-point numbers; anything else would not be plain data.
PLAIN = "biuf"
NO_ROW = -1  # in place of an id, where a batch has fewer rows than others


@dataclass(frozen=True)
class About:
    """What the backend reports about itself, and what it was given.

    ``tape_seed`` is the seed of the action tape, ``constructor_seed`` that of the setup. ``in_order``: every batch has
    all environments, in the order of their ids: declared, or seen of each. ``low`` and ``high`` are the bounds of one
    action, of the type ``action_dtype``; where actions are a dict or tuple, of this ``action_form`` (``trees.form``),
    these are lists with an item for each leaf. ``differences`` are the fields of each ``Difference``, as a list;
    ``engines`` and ``own_classes`` those of ``BackendInfo``, by name, left out where they are known from elsewhere. The
    other facts are those of ``BackendInfo``.
    """

    num_envs: int
    batch_size: int
    frame_skip: int
    autoreset: str
    in_order: bool
    tape_seed: int
    constructor_seed: int
    action_dtype: Any
    low: Any
    high: Any
    reuses_buffers: bool = False
    differences: tuple[tuple[Any, ...], ...] = ()
    chance: str | None = None
    frames_from: str | None = None
    engines: tuple[dict[str, Any], ...] = ()
    own_classes: dict[str, Any] | None = None
    fewest_rows: int | None = None
    action_form: Any = None


@dataclass(frozen=True)
class Began:
    """The backend was reset with ``seed``. The next batch is number 0; the tape goes on with its batch ``tape_at``."""

    seed: int
    tape_at: int = 0


@dataclass(frozen=True)
class Acted:
    """The actions since the reset, ``(batches, batch_size, *action_shape)``, where these are not those of the tape.

    Those of a batch with fewer rows are filled up with zeros.
    """

    actions: ArrayTree


@dataclass(frozen=True)
class Order:
    """The ids of the environments in consecutive batches, ``(batches, batch_size)``, from batch ``first`` on.

    Those of a batch with fewer rows are filled up with ``NO_ROW``.
    """

    first: int
    env_ids: NDArray[np.integer]


@dataclass(frozen=True)
class Rows:
    """Batch ``number``: its flags, rewards and ids, each ``(rows,)``, and the observations of its rows ``shown``.

    ``observations``: ``(len(shown), *observation_shape)``. ``frames``: frames of each environment's episode so far, as
    the backend's simulators count, ``(num_envs,)``, empty if it was not asked or does not know. ``ends``: how many ends
    each environment has reported so far in this history, ``(num_envs,)``, empty if they were not counted.
    """

    number: int
    env_ids: NDArray[np.integer]
    rewards: NDArray[np.floating]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    shown: NDArray[np.integer]
    observations: ArrayTree
    frames: NDArray[np.integer] = field(default_factory=lambda: np.empty(0, np.int64))
    ends: NDArray[np.integer] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Broken:
    """The backend broke the interface at batch ``number``; ``fault`` names how. Nothing of this history follows."""

    number: int
    fault: str


@dataclass(frozen=True)
class Ended:
    """The last record: ``batches`` since the last reset, and what was wrong at the end, empty if nothing.

    ``windows``: the batches of each part that was timed, as far as they were counted; its rows, where batches may have
    fewer rows than others.
    """

    batches: int
    fault: str = ""
    windows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "windows", tuple(self.windows))  # JSON has lists


Record = About | Began | Acted | Order | Rows | Broken | Ended
_KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in (About, Began, Acted, Order, Rows, Broken, Ended)}


class CutOffError(Exception):
    """The recording ends in the middle, or holds what cannot be read. The text says which."""


def write(file: IO[bytes], record: Record) -> None:
    """Append a record to a file, in one call. Raises OSError if it cannot be written."""
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    held = {name: value for name, value in values.items() if name in _TREES or isinstance(value, np.ndarray)}
    body = {name: value for name, value in values.items() if name not in held}
    arrays = [(name, array) for name, tree in held.items() for array in trees.leaves(tree)]
    parts = [_packed(array) for _, array in arrays]
    kinds = [(name, array.dtype.str, array.shape, len(part)) for (name, array), part in zip(arrays, parts, strict=True)]
    forms = {name: trees.form(tree) for name, tree in held.items() if not trees.is_leaf(tree)}
    head = {"kind": type(record).__name__, "arrays": kinds, **({"forms": forms} if forms else {})}
    file.write(b"".join((json.dumps({**head, **body}).encode(), b"\n", *parts)))


def _packed(array: NDArray[np.generic]) -> bytes:
    data = array.tobytes()
    return zlib.compress(data, 1) if len(data) >= _PACKED_FROM else data


def read(file: IO[bytes]) -> Iterator[Record]:
    """Yield the records up to ``Ended``. Raises CutOffError for anything that ``write`` would not have written."""
    while True:
        line = file.readline(_MOST_LINE)
        if not line.endswith(b"\n"):
            raise CutOffError("the recording is cut off")
        try:
            body = json.loads(line)
            kind = _KINDS[body.pop("kind")]
            forms = body.pop("forms", {})
            arrays: dict[str, list[NDArray[np.generic]]] = {}
            for name, dtype, shape, length in body.pop("arrays"):
                arrays.setdefault(name, []).append(_array(file, np.dtype(dtype), tuple(shape), length))
            for name, leaves in arrays.items():
                body[name] = trees.filled(forms.get(name), leaves)
            record = kind(**body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
            raise CutOffError(f"a record that cannot be read: {error}") from None
        yield record
        if isinstance(record, Ended):
            return


def _array(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], length: int) -> NDArray[np.generic]:
    size = dtype.itemsize * prod(shape)
    if dtype.kind not in PLAIN or min(shape, default=0) < 0 or not 0 <= length <= MOST_BYTES or size > MOST_BYTES:
        raise ValueError(f"an array of {dtype} and shape {shape}")
    data = file.read(length)
    if len(data) == length and size >= _PACKED_FROM:
        data = zlib.decompressobj().decompress(data, size)
    if len(data) < size:
        raise CutOffError("the recording is cut off")
    return np.frombuffer(data, dtype).reshape(shape)
