"""What comes from another host is not trusted: it is a line that makes sense, or none."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from vebench.child import process
from vebench.child.process import Process
from vebench.commands.session import unlike
from vebench.hosts import HostFacts, LostHostError, Said, Site


def said(*lines: bytes) -> list[Said]:
    """Return what a site takes of these lines, until the host has hung up."""
    hear, say = os.pipe()
    ends = {"stdin": os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", 0), "stdout": os.fdopen(hear, "rb", 0)}
    program = SimpleNamespace(**ends, log=None, how_it_ended=lambda: "hung up")
    host = Site("a", cast("Process", program))
    with os.fdopen(say, "wb", 0) as saying:
        saying.write(b"".join(line + b"\n" for line in lines))
    found: list[Said] = []
    with pytest.raises(LostHostError, match="lost: the program that connects hung up"):
        while True:
            found += [line for line in [host.heard()] if line is not None]
    host.hang_up()
    host.close()
    return found


def this_host(**machine: object) -> HostFacts:
    """Return what this machine would tell of itself as a host, with other facts of it."""
    told = msgspec.json.decode(json.dumps(process.facts(["numpy"], [])), type=HostFacts)
    return replace(told, host=replace(told.host, **machine))


def test_hosts_differ_in_what_makes_runs_incomparable() -> None:
    plain = this_host(governor="powersave", virtual=False)
    assert unlike({"a": plain, "b": plain}) == ""
    assert unlike({"a": plain, "b": this_host(governor="performance", virtual=True)}) == (
        "b differs from a: governor performance instead of powersave; virtual True instead of False"
    )
    limited = replace(plain, host=replace(plain.host, quota_cpus=1.5), packages={})
    difference = unlike({"a": plain, "b": limited})
    assert f"quota_cpus 1.5 instead of {plain.host.quota_cpus}" in difference
    assert f"numpy none instead of {plain.packages['numpy']}" in difference


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome to a",
        b"[" * 10_000,
        b'{"cell": 1, "clock": true}',
        b'{"cell": null, "clock": 5}',
        b'{"cell": 1, "line": 5}',
        b'{"cell": 1, "ended": "so", "log": 1}',
        b'{"hello": []}',
        b"\xff\xfe",
    ],
)
def test_a_line_that_makes_no_sense_is_none(line: bytes) -> None:
    assert said(line, b'{"cell": 1, "line": "{}"}') == [Said(cell=1, line="{}")]
