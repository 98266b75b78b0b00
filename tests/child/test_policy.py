"""The names of policies: what they mean, and what is said of those that mean nothing."""

import re

import pytest

from vebench.child.actions import GRAMMAR, PolicyChoice, parse_policy


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("tape", PolicyChoice("tape")),
        ("nature-cnn", PolicyChoice("nature-cnn")),
        ("mlp:64x32", PolicyChoice("mlp", (64, 32))),
        ("sleep:0.5ms", PolicyChoice("sleep", pause="0.5ms")),
        ("mine.agents:Agent.act", PolicyChoice("function", target="mine.agents:Agent.act")),
        ("mlp:8[device=cuda:1,precision=bf16]", PolicyChoice("mlp", (8,), device="cuda:1", precision="bf16")),
        ("nature-cnn[compile=true,threads=2]", PolicyChoice("nature-cnn", compile=True, threads=2)),
        ("sleep:1ms[cpus=0-3,8]", PolicyChoice("sleep", pause="1ms", cpus="0-3,8")),
    ],
)
def test_a_name_means(text: str, meaning: PolicyChoice) -> None:
    assert parse_policy(text) == meaning
    assert meaning.label == text
    assert meaning.is_network == (meaning.kind in ("mlp", "nature-cnn"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", GRAMMAR),
        ("network", GRAMMAR),
        ("mlp", GRAMMAR),
        ("mlp:64x", GRAMMAR),
        ("mlp:0", GRAMMAR),
        ("sleep:5", "write a time with its unit, such as 0.5ms, 250us or 1s"),
        ("sleep:61s", "at most 60s"),
        ("mine:", GRAMMAR),
        ("nature-cnn:2", GRAMMAR),
        ("mlp:8[device=cuda", "brackets do not match"),
        ("mlp:8[device]", "device is not KEY=VALUE"),
        ("mlp:8[devise=cuda]", "no detail devise; known: device, precision, compile, threads, cpus"),
        ("mlp:8[device=tpu]", "device must be cpu, cuda or cuda:N"),
        ("mlp:8[precision=fp16]", "precision must be one of fp32, bf16"),
        ("mlp:8[compile=maybe]", "compile must be true or false"),
        ("mlp:8[threads=0]", "threads must be from 1 to 9999"),
        ("sleep:1ms[device=cuda]", "device does not apply to sleep:1ms: it applies to mlp:64x64 and nature-cnn"),
        ("tape[cpus=0]", "cpus does not apply to tape: it applies to mlp:64x64 and nature-cnn"),
    ],
)
def test_a_name_that_means_nothing_is_answered_with_what_would(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        parse_policy(text)
