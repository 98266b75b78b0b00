"""The table of codes: each can be found, and names a remedy; nothing else can be found."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from support.findings import FAST, NOISY, STEADY, findings
from support.records import make_cell, make_header

from vebench.analysis.cell import Finding
from vebench.analysis.finding_codes import GRAVEST_FIRST, Code, Gravity
from vebench.analysis.findings.machine import Surroundings, of_host
from vebench.analysis.findings.run import of_run
from vebench.analysis.summary import summarise
from vebench.backends.environments.engine_copies import Engine
from vebench.backends.own_classes import OwnClasses
from vebench.backends.packages import ENVPOOL
from vebench.child.answers import CellProof
from vebench.child.window import Window
from vebench.results.records import CellRecord, Run, TopologyRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

NOWHERE = Surroundings()
MUJOCO = Engine("MuJoCo", "3.6.0", "3.11.0", "mujoco==3.6.0")
GYMNASIUM = Engine("gymnasium", "1.2.2", "1.4.0", "gymnasium==1.4.0", "the Python of gym-async@old", elsewhere=True)
UNCOMPILED = OwnClasses("not compiled", uncompiled=True, remedy="install a compiler")
HYPERTHREADS = TopologyRecord(
    cores=1,
    threads_per_core=2,
    packages={"0": "0-1"},
    nodes={"0": "0", "1": "1"},
    caches=(),
    last_level=(),
    kinds=(),
    core_cpus=("0,1",),
)
LOOP = make_cell("for-loop", 1, FAST)


def window(**counters: int) -> tuple[Window, ...]:
    """Return four equal windows."""
    return (Window(**{"ns": 10**9, "rows": 1000, "resets": 0, **counters}),) * 4


DISTURBED = (make_cell(windows=window(steal_ns=10**8)),)
# The cells, the last of which has the finding.
OF_CELLS: dict[Code, tuple[CellRecord, ...]] = {
    Code.FAILED: (make_cell(status="failed", reason="boom"),),
    Code.INTERRUPTED: (make_cell(status="failed", reason="interrupted"),),
    Code.DIFFERENT_WORK: (make_cell("gym-sync", 1, STEADY, verdict="different"),),
    Code.ABOVE_CEILING: (make_cell("ceiling", 1, STEADY), make_cell("gym-sync", 1, FAST)),
    Code.UNLIKE_ENGINES: (make_cell("envpool-sync", 1, STEADY, engines=(MUJOCO,)),),
    Code.OTHER_PACKAGES: (make_cell("gym-async", 1, STEADY, engines=(GYMNASIUM,)),),
    Code.CONTESTED: (make_cell("pufferlib", 1, windows=window(steal_ns=10**8)),),
    Code.POLLING: (make_cell("pufferlib", 1, steps=STEADY),),
    Code.FALLBACK: (make_cell("fast-sync", 1, STEADY, own_classes=OwnClasses(refused="another version")),),
    Code.THROTTLED: (make_cell(windows=window(throttled_ns=1)),),
    Code.UNPINNED: (make_cell(steps=STEADY, affinity=(0, 1)),),
    Code.MEMORY_UNBOUND: (make_cell(steps=STEADY, unbound="not permitted"),),
    Code.EXTRA_THREADS: (make_cell("gym-sync", 1, STEADY, seats=(("0", "0"),)),),
    Code.DISTURBED: DISTURBED,
    Code.UNSTABLE: (make_cell(steps=NOISY),),
    Code.DRIFTING: (make_cell(steps=(1000, 1020, 1040, 1061, 1082, 1104)),),
    Code.UNSETTLED: (make_cell(steps=STEADY, settled=False),),
    Code.LOOP_COST: (make_cell("null", 1, (900_000,) * 4),),
    Code.SHORT_WINDOWS: (make_cell(steps=(40, 40, 40, 40)),),
    Code.TOO_FEW_WINDOWS: (make_cell(steps=STEADY[:3]),),
    Code.TOO_FEW_REPEATS: (make_cell(steps=STEADY), make_cell(steps=STEADY, repeat=1)),
    Code.UNVERIFIED: (make_cell("gym-sync", 1, STEADY, verdict="unverified"),),
    Code.UNPROVEN: (make_cell("gym-sync", 1, STEADY, proof=CellProof("unverified", reason="it gave no answer")),),
    Code.INVALID_VALUES: (make_cell("gym-sync", 1, STEADY, proof=CellProof("identical", invalid="NaN")),),
    Code.OUTLIERS: (make_cell(steps=(*STEADY, *STEADY, 1002, 998, 1003, 800)),),
    Code.RESET_BURSTS: (make_cell(windows=(*window()[:3], Window(ns=10**9, rows=1064, resets=64))),),
    Code.SLOWER_THAN_FOR_LOOP: (LOOP, make_cell("gym-sync", 1, STEADY)),
    Code.RETROGRADE: (make_cell("shm-sync", 1, FAST), make_cell("shm-sync", 2, STEADY, processes=2)),
    Code.NOT_COMPILED: (make_cell("fast-sync", 1, STEADY, own_classes=UNCOMPILED),),
    Code.OVERSUBSCRIBED: (make_cell(workers=4, steps=STEADY),),
    Code.SKIPPED: (make_cell(status="skipped", reason="no memory"),),
}
# What is different on the machine.
OF_HOST: dict[Code, dict[str, object]] = {
    Code.QUOTA: {"quota_cpus": 1.5},
    Code.GOVERNOR: {"governor": "powersave"},
    Code.MEMORY_NODES: {"topology": HYPERTHREADS, "nodes_allowed": (0,)},
    Code.BOOST: {"boost": True},
    Code.SMT: {"topology": HYPERTHREADS},
    Code.VIRTUAL_MACHINE: {"virtual": True},
}
RIGHT_NOW: dict[Code, Surroundings] = {
    Code.OTHER_LOAD: Surroundings(others_share=0.3),
    Code.LITTLE_SHM: Surroundings(shared_memory_bytes=0),
    Code.MISSING_PACKAGES: Surroundings(missing=(ENVPOOL,)),
}


def produced(code: Code) -> Iterable[Finding]:
    """Return what is found where there is reason for this code. Raises KeyError for one without a reason."""
    head = make_header()
    if code in OF_CELLS:
        return findings(*OF_CELLS[code])[-1]
    if code in OF_HOST:
        return of_host(msgspec.structs.replace(head.host, **OF_HOST[code]), NOWHERE)
    if code in RIGHT_NOW:
        return of_host(head.host, RIGHT_NOW[code])
    return {
        Code.IMPRECISE: summarise(Run(make_header(until=0.001), (LOOP,)))[0].findings,
        Code.UNUSABLE: of_run(Run(head, DISTURBED), summarise(Run(head, DISTURBED))),
        Code.INCOMPLETE: of_run(Run(msgspec.structs.replace(head, cells=2), (LOOP,)), ()),
        Code.FILE: of_run(Run(head, (LOOP,), ("a.jsonl, line 3: cut off, left out",)), ()),
    }[code]


@pytest.mark.parametrize("code", list(Code))
def test_each_code_can_be_found_and_names_a_remedy(code: Code) -> None:
    found = {finding.code: finding for finding in produced(code)}
    assert code in found
    assert found[code].message
    assert found[code].remedy


def test_a_finding_without_a_code_of_the_table_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="'no-such-code' is not in the table"):
        Finding(cast("Code", "no-such-code"), "something is wrong", "do something")


def test_scripts_see_a_finding_as_three_strings() -> None:
    finding = Finding(Code.TOO_FEW_WINDOWS, "no window gives no interval", "measure with --rounds 4 or more")
    assert json.loads(json.dumps(asdict(finding))) == {
        "code": "too-few-windows",
        "message": "no window gives no interval",
        "remedy": "measure with --rounds 4 or more",
    }


def test_the_table_never_goes_back_in_gravity_so_that_reports_list_findings_in_its_order() -> None:
    gravities = list(Gravity)
    ranks = [gravities.index(code.gravity) for code in Code]
    assert ranks == sorted(ranks)
    assert tuple(Code) == GRAVEST_FIRST


def test_of_a_sweep_the_cells_that_cannot_run_are_the_last_to_be_named() -> None:
    assert [code for code in GRAVEST_FIRST if code in {*OF_CELLS, Code.IMPRECISE}][-1] is Code.SKIPPED


def test_every_outcome_of_a_sweep_has_the_finding_that_explains_it(sweep: Run) -> None:
    found = [finding for cell in summarise(sweep) for finding in cell.findings]
    assert {finding.code for finding in found} == {
        "failed", "skipped", "too-few-windows", "slower-than-for-loop", "oversubscribed",
    }  # fmt: skip
    assert all(finding.message and finding.remedy for finding in found)
