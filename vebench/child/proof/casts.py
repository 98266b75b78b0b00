"""Names faults of what observations are made of: of their type and shape, and of casts that have lost precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.child.proof.case import where
from vebench.child.proof.rows import alike

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.child.proof.case import Case

# What observations of real numbers and of whole ones may have been cast to.
CASTS = {"f": ("float16", "float32", "int64", "uint8"), "iu": ("uint8", "int8", "int16", "int32", "float16", "float32")}
WORDS = {"float16": "rounded to float16", "float32": "rounded to float32", "int64": "cut to whole numbers"}


def cast(case: Case) -> str | None:
    """Return the fault if observations have another type or shape, or have lost precision by a cast."""
    if case.mismatch.field != "observations" or case.rows is None:
        return None
    forms = [trees.form(row.observation) for row in case.rows]
    if forms[0] != forms[1]:
        theirs, own = map(trees.in_words, forms)
        return _since(case, f"observations are {own}, not {theirs}")
    case = case.of_leaf
    fault = _cast_of_leaf(case, *(row.observation for row in case.rows or ()))
    return None if fault is None else fault.replace("observations", case.mismatch.place, 1)


def _cast_of_leaf(case: Case, expected: Any, found: Any) -> str | None:  # noqa: ANN401 - arrays, one each
    if found.dtype == expected.dtype and found.shape == expected.shape:
        return _cast_and_back(case, expected, found)
    shapes = ("", "") if found.shape == expected.shape else (f" of shape {each.shape}" for each in (found, expected))
    own, theirs = (f"{each.dtype}{shape}" for each, shape in zip((found, expected), shapes, strict=True))
    text = f"observations are {own}, not {theirs}"
    with np.errstate(all="ignore"):
        if found.shape == expected.shape and not _equal(expected.astype(found.dtype), found):
            text += ", and have other values"
    return _since(case, text)


def _since(case: Case, text: str) -> str:
    return case.late(text) if case.begins_late or (case.step == 0 and case.in_later_reset) else text


def _cast_and_back(case: Case, expected: NDArray[np.generic], found: NDArray[np.generic]) -> str | None:
    """Return the fault if a cast explains the backend's observations. The first that differs is given."""
    kinds = next((kinds for kind, kinds in CASTS.items() if expected.dtype.kind in kind), ())
    for kind in kinds:
        explained = _explained_by_cast(case, kind) if _equal(_cast(expected, kind), found) else {}
        differ = [step for step, differs in explained.items() if differs and step >= case.step]
        if not differ:
            continue
        text = f"observations are {WORDS.get(kind, f'cut to {kind}')}"
        if any(step not in explained for step in case.later):
            return f"{text}{where(case, differ)}"
        there = all(step in explained for step in case.earlier) and (case.step or not case.in_later_reset)
        return text if there else case.late(text)
    return None


def _explained_by_cast(case: Case, kind: str) -> dict[int, bool]:
    """Return the steps in which this cast gives the backend's row, and whether it changes anything there.

    Empty if it does not explain all rows that differ, or if nothing but zeros is left of them, as of much else.
    """
    explained: dict[int, bool] = {}
    is_left = False
    for step, row in enumerate(case.made(case.actions)):
        found = case.found(step)
        if found is None:
            continue
        observation = _cast(row.observation, kind)
        differs = not alike(case.digested(row), found)
        if alike(case.digested(row._replace(observation=observation)), found):
            explained[step] = differs
            is_left = is_left or (differs and bool(observation.any()))
        elif differs and step >= case.step:  # one before is excused
            return {}
    return explained if is_left else {}


def _cast(observation: NDArray[np.generic], kind: str) -> NDArray[np.generic]:
    """Return an observation that was of another type in between."""
    with np.errstate(all="ignore"):
        return observation.astype(kind).astype(observation.dtype)


def _equal(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
