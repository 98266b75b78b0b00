"""The names of policies: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.child.policies.named import GRAMMAR, PolicyName, is_network, parse_policy, parse_time


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("tape", PolicyName("tape")),
        ("nature-cnn", PolicyName("nature-cnn")),
        ("mlp:64x32", PolicyName("mlp", (64, 32))),
        ("transformer:2x128", PolicyName("transformer", (2, 128))),
        ("sleep:0.5ms", PolicyName("sleep", seconds=0.0005)),
        ("mine.agents:Agent.act", PolicyName("function", target="mine.agents:Agent.act")),
    ],
)
def test_a_name_means(text: str, meaning: PolicyName) -> None:
    assert parse_policy(text) == meaning
    assert is_network(text) == (meaning.kind in ("mlp", "nature-cnn", "transformer"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", GRAMMAR),
        ("network", GRAMMAR),
        ("mlp", GRAMMAR),
        ("mlp:64x", GRAMMAR),
        ("mlp:0", "at most 256 layers, each from 1 to 65536 wide"),
        ("transformer:2", "transformer:LAYERSxWIDTH has 1 to 256 layers, and a width that 8 divides"),
        ("transformer:2x12", "transformer:LAYERSxWIDTH has 1 to 256 layers, and a width that 8 divides"),
        ("sleep:5", "write a time with its unit, such as 0.5ms, 250us or 1s"),
        ("sleep:61s", "at most 60s"),
        ("mine:", GRAMMAR),
        ("nature-cnn:2", GRAMMAR),
    ],
)
def test_a_name_that_means_nothing_is_answered_with_what_would(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        parse_policy(text)


@given(st.lists(st.integers(1, 1 << 16), min_size=1, max_size=6))
def test_layers_are_as_wide_as_they_are_written(widths: list[int]) -> None:
    assert parse_policy(f"mlp:{'x'.join(map(str, widths))}").sizes == tuple(widths)


@given(st.integers(0, 10**6), st.sampled_from([("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]))
def test_a_time_is_its_number_in_its_unit(count: int, unit: tuple[str, float]) -> None:
    assert parse_time(f"{count}{unit[0]}") == pytest.approx(count * unit[1])
