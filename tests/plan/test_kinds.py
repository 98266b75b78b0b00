"""Kinds of values: numbers, counts, times, shares and sizes, from text and from Python."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends.entry import MAX_COUNT
from vebench.errors import UsageError
from vebench.plan.grammar import Kind, Option, counts, seconds, share, size, switch, time_of, whole, word

COUNTS = st.integers(1, MAX_COUNT)


def option(kind: Kind) -> Option:
    return Option("some", ("--some",), "", "", "", kind)


def refusal(kind: Kind, given: object) -> str:
    """Return the one line of an error that names the option."""
    with pytest.raises(UsageError) as raised:
        option(kind).value(given)
    text = str(raised.value)
    assert text.startswith("--some ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("8", (8,)),
        ("08", (8,)),
        ("4,1,2,4", (1, 2, 4)),
        (" 1 , 2 ", (1, 2)),
        ("1..256", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ("1..6", (1, 2, 4, 6)),
        ("3..20", (3, 6, 12, 20)),
        ("5..5", (5,)),
        ("1..16:+5", (1, 6, 11, 16)),
        ("1..17:+5", (1, 6, 11, 16, 17)),
        ("1..81:*3", (1, 3, 9, 27, 81)),
        ("1..100:*3", (1, 3, 9, 27, 81, 100)),
        ("1..8,12", (1, 2, 4, 8, 12)),
        ("4..6:+1,1..4", (1, 2, 4, 5, 6)),
        ("65536", (65536,)),
        (3, (3,)),
        ([4, 2], (2, 4)),
        (["1..4", "3"], (1, 2, 3, 4)),
    ],
)
def test_counts_are_numbers_and_ranges(given: object, value: tuple[int, ...]) -> None:
    assert option(counts()).value(given) == value


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("", "a number is missing"),
        ("1,", "a number is missing"),
        ("0", "0 is too few"),
        ("0..4", "0 is too few"),
        (0, "0 is too few"),
        ("-4", "-4 is negative"),
        ("1..-4", "-4 is negative"),
        ("256..1", "256..1 runs backwards"),
        ("65537", "65537 is more than 65536"),
        ("1..99999999999999999999", "99999999999999999999 is more than 65536"),
        ("9" * 10_000, "is more than 65536"),
        ("1..4:+0", "0 is too few"),
        ("1..4:+-1", "-1 is negative"),
        ("1..4:*1", "never grows"),
        ("all", "all is not a number or a range"),
        ("1..", "1.. is not a number or a range"),
        ("8:+5", "8:+5 is not a number or a range"),
        ([1.5], "1.5 is not a number or a range"),
        ("1_0", "1_0 is not a number or a range"),
        ("٣", "٣ is not a number or a range"),
        ("²", "² is not a number or a range"),
    ],
)
def test_bad_counts_are_refused_with_the_grammar(given: object, complaint: str) -> None:
    found = refusal(counts(), given)
    assert complaint in found
    assert "1..256 (doubles)" in found


@given(first=COUNTS, last=COUNTS, operator=st.sampled_from(["+", "*"]), step=COUNTS)
def test_a_range_ascends_within_its_ends_and_includes_both(first: int, last: int, operator: str, step: int) -> None:
    first, last = sorted((first, last))
    step += operator == "*" and step == 1
    found = option(counts()).value(f"{first}..{last}:{operator}{step}")
    assert (found[0], found[-1]) == (first, last)
    assert list(found) == sorted(set(found))


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (share(), "5%", 0.05),
        (share(), " 12.5 % ", 0.125),
        (share(), "0.05", 0.05),
        (share(), 0.2, 0.2),
        (seconds(), "250ms", 0.25),
        (seconds(), "2m", 120.0),
        (seconds(), "1.5h", 5400.0),
        (seconds(), "90", 90.0),
        (seconds(), 3, 3.0),
        (seconds(or_none=True), "0", 0.0),
        (size(), "8G", 8 << 30),
        (size(), "512MiB", 512 << 20),
        (size(), 1 << 20, 1 << 20),
        (whole(1, 1024, "node"), "1024", 1024),
        (whole(1, 1024, "node"), "node", "node"),
        (switch(), "true", True),
        (switch(), False, False),
        (word("auto", "off"), "off", "off"),
    ],
)
def test_a_value_is_read_from_text_and_from_python(kind: Kind, given: Any, value: object) -> None:
    found = option(kind).value(given)
    assert (type(found), found) == (type(value), value)
    assert option(kind).value(kind.written(found)) == found


BAD: dict[str, tuple[Kind, tuple[object, ...]]] = {
    "share": (
        share(),
        ("", "%", "0", "0%", "1", "100%", "-5%", "nan", "inf", "5%%", "1e400", "five", "5 5", 1.0, None),
    ),
    "seconds": (seconds(), ("", "s", "soon", "1 parsec", "nan", "inf", "0", "-1", "1e-12", 0, -1.0, math.nan, "9999h")),
    "size": (size(), ("", "8", "-8G", "0G", "much", "9" * 30 + "G", 0, 1.5)),
    "whole": (whole(1, 1024, "node"), ("0", "1025", "-1", "two", "1.5", "\u0663", "", "1_0", 2.5, True, "9" * 10_000)),
    "switch": (switch(), ("yes", 3, None)),
    "word": (word("auto", "off"), ("Auto", "", 3, "\udcff")),
}


@pytest.mark.parametrize(("name", "given"), [(name, one) for name, (_, bad) in BAD.items() for one in bad])
def test_a_bad_value_is_refused_in_one_line(name: str, given: object) -> None:
    refusal(BAD[name][0], given)


@pytest.mark.parametrize(("value", "text"), [(0, "0s"), (0.5, "500ms"), (90, "90s"), (300, "5m"), (1.5, "1.5s")])
def test_times_are_written_with_their_unit(value: float, text: str) -> None:
    assert time_of(value) == text
