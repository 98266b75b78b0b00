"""Dicts and tuples of arrays: what is true of them is true of one array."""

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends import trees
from vebench.backends.environments.making import sample
from vebench.backends.interface import ActionSpace

ROWS = 3
arrays = st.integers(0, 9).map(lambda first: np.arange(first, first + 2 * ROWS).reshape(ROWS, 2))
keys = st.text("abc", min_size=1, max_size=2)
forests = st.recursive(
    arrays,
    lambda parts: (
        st.dictionaries(keys, parts, min_size=1, max_size=3) | st.lists(parts, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def equal(one: Any, other: Any) -> bool:
    return trees.form(one) == trees.form(other) and all(map(np.array_equal, trees.leaves(one), trees.leaves(other)))


def turned(tree: Any) -> Any:
    """Return the same tree with the keys of dicts in the opposite order."""
    if isinstance(tree, dict):
        return {key: turned(tree[key]) for key in reversed(tree)}
    return tuple(map(turned, tree)) if isinstance(tree, tuple) else tree


@given(forests)
def test_a_tree_is_made_again_from_its_form_and_its_leaves(tree: Any) -> None:
    form = json.loads(json.dumps(trees.form(tree)))
    assert equal(trees.filled(form, trees.leaves(tree)), tree)


@given(forests)
def test_rows_are_read_one_by_one_as_those_of_an_array(tree: Any) -> None:
    rows = list(trees.as_rows(tree))
    assert len(rows) == ROWS
    assert all(equal(row, trees.part(tree, index)) for index, row in enumerate(rows))
    assert trees.as_rows(tree) is tree or isinstance(tree, (dict, tuple))


@given(forests)
def test_rows_are_written_as_those_of_an_array(tree: Any) -> None:
    written = trees.mapped(np.zeros_like, tree)
    rows = trees.as_rows(written)
    rows[0] = turned(trees.part(tree, 0))
    rows[1:] = turned(trees.part(tree, slice(1, None)))
    assert equal(written, tree)
    copy = rows.copy()
    rows[:] = trees.mapped(np.zeros_like, tree)
    assert equal(copy[:], tree)


def test_of_a_tree_of_spaces_each_is_drawn_from_in_the_order_of_keys() -> None:
    low, high = ActionSpace.discrete(5), ActionSpace.discrete(9, start=100)
    drawn: Any = sample({"b": high, "a": (low,)}, 3, 4, 2)
    np.testing.assert_array_equal(drawn["a"][0], sample(low, 3, 4, 2))
    assert drawn["b"].min() >= 100
