"""The machine as vebench sees it: this one, small ones of our own, and real ones where their trees are at hand."""

import importlib.util
import json
import os
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command, Result
from support.places import DUMPS

Doctor = Callable[..., Result]


EXPECTED = sorted(DUMPS.glob("*.expected.json"))


@pytest.fixture
def doctor(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Return the command's ``doctor``, on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return partial(vebench, "doctor")


def examined(doctor: Doctor, *arguments: str | Path) -> dict[str, Any]:
    result = doctor("-f", "json", *arguments)
    assert (result.status, result.err) == (0, "")
    facts = json.loads(result.out)
    assert isinstance(facts, dict)
    return facts


def lay(root: Path, **texts: str) -> Path:
    """Lay files, by their paths with double underscores for slashes, under ``root``."""
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the tree of a machine with two nodes, two cores of two threads in each, and a node of memory alone."""
    cpus, nodes = "sys__devices__system__cpu", "sys__devices__system__node"
    files = {f"{cpus}__online": "0-7\n"}
    for cpu in range(8):
        topology = f"{cpus}__cpu{cpu}__topology"
        files[f"{topology}__core_cpus_list"] = f"{cpu % 4},{cpu % 4 + 4}\n"
        files[f"{topology}__physical_package_id"] = f"{cpu % 2}\n"
    for node in range(2):
        files[f"{nodes}__node{node}__cpulist"] = f"{node},{node + 2},{node + 4},{node + 6}\n"
    files[f"{nodes}__node5__cpulist"] = "\n"
    quota = {"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu.max": "350000 100000\n"}
    quota["proc__self__mountinfo"] = "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n"
    return lay(tmp_path / "machine", **files, **quota)


def test_the_json_has_what_it_is_promised_to_have(doctor: Doctor, small: Path) -> None:
    facts = examined(doctor, "--sysroot", small)
    promised = {
        "online": "0-7",
        "allowed": "0-7",
        "cores": ["0,4", "1,5", "2,6", "3,7"],
        "packages": {"0": "0,2,4,6", "1": "1,3,5,7"},
        "nodes": {"0": "0,2,4,6", "1": "1,3,5,7"},
        "cpuless_nodes": [5],
        "l3_groups": None,
        "kinds_slow_to_fast": ["0-7"],
        "quota_cpus": 3.5,
        "usable_cpus": 3,
        "order": {"compact": [0, 2, 1, 3, 4, 6, 5, 7], "scatter": [0, 1, 2, 3, 4, 5, 6, 7]},
    }
    assert {key: facts[key] for key in promised} == promised
    assert facts["versions"] == {}, "this machine's have nothing to do with that one"


def test_workers_are_shown_where_they_will_be_placed(doctor: Doctor, small: Path) -> None:
    (small / "sys/fs/cgroup/cpu.max").unlink()
    arguments = ("--sysroot", small, "--workers", "3")
    assert examined(doctor, *arguments)["workers"] == [0, 2, 1]
    assert examined(doctor, *arguments, "--pin", "scatter[smt=close]")["workers"] == [0, 4, 1]
    assert examined(doctor, *arguments, "--pin", "7,1")["workers"] == [7, 1, 7]


def test_this_machine_has_the_cpus_that_the_kernel_lets_this_process_use(doctor: Doctor) -> None:
    facts = examined(doctor)
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    assert allowed is None or sorted(facts["order"]["compact"]) == allowed
    assert facts["versions"]["vebench"]


def test_a_folder_that_is_no_machines_tree_is_one_clear_error(doctor: Doctor, tmp_path: Path) -> None:
    result = doctor("--sysroot", tmp_path)
    assert result.status == 2
    assert "has no CPU in sys/devices/system/cpu" in result.refusal
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    assert "has no CPU in" in doctor("--sysroot", tmp_path).refusal


@pytest.mark.skipif(not EXPECTED, reason="no trees of real machines here")
@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.name.partition(".")[0])
def test_a_real_machine_is_seen_as_it_is(doctor: Doctor, tmp_path: Path, path: Path) -> None:
    expected = json.loads(path.read_text())
    with tarfile.open(DUMPS / f"{expected['name']}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="tar")
    facts, machine = examined(doctor, "--sysroot", tmp_path / expected["name"]), expected["machine"]
    assert facts["online"] == machine["online_cpus"]
    for key in ("cores", "packages", "nodes", "l3_groups"):
        assert facts[key] == machine[key], key
    assert facts["kinds_slow_to_fast"] == machine.get("cpu_kinds_slow_to_fast", [machine["online_cpus"]])
    assert facts["cpus_without_node"] == machine.get("cpus_without_node", "")
    if "distances" in machine:
        assert facts["distances"] == machine["distances"]
    allowed = expected["allowed"]
    assert facts["allowed"] == (allowed["cpus"] if allowed else machine["online_cpus"])
    if allowed:
        assert facts["allowed_nodes"] == allowed["mems"]
    specification = importlib.util.spec_from_file_location("order_check", DUMPS / "order_check.py")
    checker = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(checker)
    for policy, order in facts["order"].items():
        assert checker.check(expected, order, policy, checker.plist(facts["allowed"])) == []


def test_the_parts_of_a_machine_are_nested_with_their_workers(doctor: Doctor, small: Path) -> None:
    result = doctor("--sysroot", small, "--workers", "3")
    assert (result.status, result.err, max(map(len, result.out.splitlines())) <= 80) == (0, "", True)
    lines = [line.split() for line in result.out.splitlines()]
    begin = lines.index(["package", "0", "0,2..6", "0,2"])
    assert lines[begin : begin + 4] == [
        ["package", "0", "0,2..6", "0,2"],
        ["node", "0", "0,2..6", "0,2"],
        ["package", "1", "1,3..7", "1"],
        ["node", "1", "1,3..7", "1"],
    ]
    assert ["workers", "3", "workers", "in", "this", "order", "on", "CPU", "0,", "2,", "1"] in lines


def test_cpus_that_may_not_be_used_are_marked(doctor: Doctor, small: Path) -> None:
    lay(small, proc__self__status="Cpus_allowed_list:\t0-1,4\n")
    lines = [line.split() for line in doctor("--sysroot", small).out.splitlines()]
    assert ["package", "0", "0,2..6", "2,6"] in lines
    usable = "3 of 8 CPUs: 0-1,4 may be used, quota of 3.5 (/sys/fs/cgroup/cpu.max)"
    assert usable in " ".join(word for line in lines for word in line)


def test_what_can_be_fixed_is_reported_with_its_remedy(doctor: Doctor, small: Path) -> None:
    lay(
        small,
        sys__devices__system__cpu__cpufreq__policy0__scaling_governor="powersave\n",
        sys__devices__system__cpu__cpufreq__boost="1\n",
        proc__cpuinfo="model name : Fast 9000\nflags : fpu hypervisor\n",
        **{"sys__fs__cgroup__cpu.max": "50000 100000\n"},
    )
    facts = examined(doctor, "--sysroot", small)
    assert facts["usable_cpus"] == 1
    assert facts["cpu_model"] == "Fast 9000"
    codes = [finding["code"] for finding in facts["findings"]]
    assert codes == ["throttled", "clocks", "clocks", "oversubscribed", "virtual-machine"]
    assert all(finding["remedy"] for finding in facts["findings"])
