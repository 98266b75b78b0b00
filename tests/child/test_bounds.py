"""Counts are bounded wherever they are in an answer."""

from dataclasses import dataclass

import pytest

from vebench.child.answers import MOST, check_counts


@dataclass
class Holder:
    """Holds anything."""

    first: object = None
    second: object = None


GOOD = (None, 0, MOST, -1.5, "-1", True, (), (1, (2, 3)), [0], {"-1": 4}, {"a": (5, [6])})
BAD = ((-1, -1), (MOST + 1, MOST + 1), ((0, -2), -2), ((1, (2, -3)), -3), ([-4], -4), ({"a": (0, [-5])}, -5))


@pytest.mark.parametrize("value", GOOD)
def test_counts_and_what_is_no_integer_pass(value: object) -> None:
    check_counts(Holder(value, value), Holder)


@pytest.mark.parametrize(("value", "wrong"), BAD)
def test_an_integer_that_is_no_count_is_named_with_its_field_however_deep_it_lies(value: object, wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"^second must be a whole number from 0 to {MOST}, not {wrong}$"):
        check_counts(Holder(0, value), Holder)


@pytest.mark.parametrize("value", [0, (1, 0)])
def test_a_field_that_must_be_positive_may_not_hold_zero(value: object) -> None:
    check_counts(Holder(value, 1), Holder, positive=("second",))
    with pytest.raises(ValueError, match=r"^second must be a whole number from 1 "):
        check_counts(Holder(1, value), Holder, positive=("second",))
