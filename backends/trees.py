"""Trees of arrays: observations and actions of environments whose spaces may be ``Dict`` or ``Tuple``, also nested.

A tree is a leaf, or a dict or tuple of trees. Leaves come in the order of sorted keys, since dicts that differ only in
their order are the same observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Tree = Any  # an array or another leaf, or a dict or tuple of trees
Where = Any  # an index of an array: a number, slice, mask or array of numbers


def is_leaf(tree: Tree) -> bool:
    """Return whether a tree is a leaf: neither a dict nor a tuple."""
    return not isinstance(tree, (dict, tuple))


def named_leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its name: ``camera``, ``arm/0``. A tree that is a leaf has the given ``name``."""
    if is_leaf(tree):
        yield name, tree
        return
    keys = sorted(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield from named_leaves(tree[key], f"{name}/{key}" if name else str(key))


def leaves(tree: Tree) -> list[Any]:
    """Return all leaves."""
    return [leaf for _, leaf in named_leaves(tree)]


def mapped(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return the tree of the function's results for each leaf. Leaves of ``others`` are further arguments."""
    if isinstance(tree, dict):
        return {key: mapped(function, part, *(other[key] for other in others)) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(mapped(function, part, *(other[at] for other in others)) for at, part in enumerate(tree))
    return function(tree, *others)


def part(tree: Tree, where: Where) -> Tree:
    """Return the tree of ``leaf[where]`` of each leaf."""
    return mapped(lambda leaf: leaf[where], tree)


def form(tree: Tree) -> Tree:
    """Return the form of a tree for JSON: None for a leaf, a list for a tuple."""
    if isinstance(tree, dict):
        return {key: form(tree[key]) for key in sorted(tree)}
    return [form(item) for item in tree] if isinstance(tree, tuple) else None


def filled(of_form: Tree, from_leaves: Iterable[Any]) -> Tree:
    """Return the tree of this form with these leaves, in the order of ``leaves``."""
    left = iter(from_leaves)

    def fill(shape: Tree) -> Tree:
        if isinstance(shape, dict):
            return {key: fill(shape[key]) for key in sorted(shape)}
        if isinstance(shape, list):
            return tuple(map(fill, shape))
        return next(left)

    return fill(of_form)


def in_words(of_form: Tree) -> str:
    """Return a form in words: ``{camera, state}``, ``(array, {left, right})``."""
    if isinstance(of_form, dict):
        parts = (key if inner is None else f"{key}: {in_words(inner)}" for key, inner in of_form.items())
        return f"{{{', '.join(parts)}}}"
    return f"({', '.join(map(in_words, of_form))})" if isinstance(of_form, list) else "array"


class TreeRows:
    """The rows of a tree of arrays, with operators of an array: write to an index, read an index, iterate."""

    def __init__(self, tree: Mapping[str, Tree] | tuple[Tree, ...]) -> None:
        self._tree = tree
        self._is_dict = isinstance(tree, dict)
        self._keys: tuple[Any, ...] = tuple(tree) if self._is_dict else tuple(range(len(tree)))
        self._parts = tuple(as_rows(tree[key]) for key in self._keys)

    def __setitem__(self, where: Where, value: Tree) -> None:
        """Write a value, or a value for each index in ``where``."""
        for key, rows in zip(self._keys, self._parts):  # noqa: B905 - runs in each step; lengths are equal
            rows[where] = value[key]

    def __getitem__(self, where: Where) -> Tree:
        """Return the tree of the rows, or the row, at ``where``."""
        return part(self._tree, where)

    def __iter__(self) -> Iterator[Tree]:
        """Return an iterator over the trees of single rows."""
        rows: Iterator[Tree] = zip(*self._parts)  # noqa: B905 - runs in each step; lengths are equal
        return (dict(zip(self._keys, row)) for row in rows) if self._is_dict else rows  # noqa: B905 - as above

    def copy(self) -> TreeRows:
        """Return a copy of all rows."""
        return TreeRows(mapped(lambda leaf: leaf.copy(), self._tree))


def as_rows(tree: Tree) -> Any:
    """Return ``TreeRows`` of a tree. An array is returned unchanged, since it has the same operators."""
    return TreeRows(tree) if isinstance(tree, (dict, tuple)) else tree
