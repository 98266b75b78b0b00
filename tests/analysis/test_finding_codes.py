"""The table of codes: each can be found, with a remedy, and nothing else; and what is found of machines."""

from collections.abc import Iterable

import msgspec
import pytest
from support.findings import FAST, NOISY, STEADY, findings
from support.records import make_cell, make_header

from vebench.analysis.cell import Code, Finding, Gravity
from vebench.analysis.rules import Surroundings, of_host, of_run
from vebench.analysis.summary import summarise
from vebench.backends.interface import Engine, OwnClasses
from vebench.backends.packages import ENVPOOL
from vebench.child.answers import CellProof, StepCosts, Timed, Window
from vebench.results.records import CellRecord, Run, TopologyRecord

NOWHERE = Surroundings()
MUJOCO = Engine("MuJoCo", "3.6.0", "3.11.0", "mujoco==3.6.0")
GYMNASIUM = Engine("gymnasium", "1.2.2", "1.4.0", "gymnasium==1.4.0", "the Python of gym-async@old", elsewhere=True)
REFUSED = OwnClasses(refused="not compiled", remedy="install a compiler")
HYPERTHREADS = TopologyRecord(
    cores=1,
    threads_per_core=2,
    packages={"0": "0-1"},
    nodes={"0": "0", "1": "1"},
    last_level=(),
    kinds=(),
    core_cpus=("0,1",),
)

LOOP = make_cell("for-loop", 1, FAST)


def window(**counters: int) -> tuple[Window, ...]:
    """Return four equal windows."""
    return (Window(**{"ns": 10**9, "rows": 1000, "resets": 0, **counters}),) * 4


def growing(bytes_per_step: int) -> tuple[Window, ...]:
    """Return windows before each of which memory has grown by this much for each step."""
    return tuple(
        Window(10**9, 1000, 0, steps_before=1000 * number, resident_bytes=10**8 + bytes_per_step * 1000 * number)
        for number in range(5)
    )


CHEAPER = CellProof("identical", rows=9, costs=(StepCosts(9, 9, 0, 300, 1), StepCosts(9, 1, 1, 9000, 0)))
DISTURBED = (make_cell(windows=window(steal_ns=10**8)),)
# The cells, the last of which has the finding.
OF_CELLS: list[tuple[Code, tuple[CellRecord, ...]]] = [
    (Code.AGEING, (make_cell(windows=sum((window(rows=10**6 // age, steps_before=age) for age in (500, 900)), ())),)),
    (Code.LEAK, (make_cell(windows=growing(1024)),)),
    (Code.FAILED, (make_cell(status="failed", reason="boom"),)),
    (Code.INCOMPLETE, (make_cell(status="failed", reason="interrupted"),)),
    (Code.DIFFERENT_WORK, (make_cell("gym-sync", 1, STEADY, verdict="different"),)),
    (
        Code.BELOW_SIMULATOR,
        (make_cell("ceiling", 1, windows=window(cpu_ns=10**9)), make_cell("gym-sync", 1, windows=window(cpu_ns=10**8))),
    ),
    (Code.ABOVE_CEILING, (make_cell("ceiling", 1, STEADY), make_cell("gym-sync", 1, FAST))),
    (Code.OTHER_PACKAGES, (make_cell("envpool-sync", 1, STEADY, engines=(MUJOCO,)),)),
    (Code.OTHER_PACKAGES, (make_cell("gym-async", 1, STEADY, engines=(GYMNASIUM,)),)),
    (Code.POLLING, (make_cell("pufferlib", 1, windows=window(steal_ns=10**8)),)),
    (Code.POLLING, (make_cell("pufferlib", 1, steps=STEADY),)),
    (Code.FALLBACK, (make_cell("fast-sync", 1, STEADY, own_classes=OwnClasses(refused="another version")),)),
    (Code.THROTTLED, (make_cell(windows=window(throttled_ns=1)),)),
    (Code.UNPINNED, (make_cell(steps=STEADY, affinity=(0, 1)),)),
    (Code.UNPINNED, (make_cell(steps=STEADY, unbound="not permitted"),)),
    (Code.PRIORITY, (make_cell(steps=STEADY, priorities=("nice -5",)),)),
    (Code.EXTRA_THREADS, (make_cell("gym-sync", 1, STEADY, seats=(("0", "0"),)),)),
    (Code.DISTURBED, DISTURBED),
    (Code.IMPRECISE, (make_cell(steps=NOISY),)),
    (Code.DRIFTING, (make_cell(steps=(1000, 1020, 1040, 1061, 1082, 1104)),)),
    (Code.DRIFTING, (make_cell(steps=STEADY, settled=False),)),
    (Code.RECOMPILED, (make_cell(windows=window(compiles=1)),)),
    (Code.LOOP_COST, (make_cell("null", 1, (900_000,) * 4),)),
    (Code.SHORT_WINDOWS, (make_cell(steps=(20, 20, 20, 20)),)),
    (Code.IMPRECISE, (make_cell(steps=STEADY[:3]),)),
    (Code.IMPRECISE, (make_cell(steps=STEADY), make_cell(steps=STEADY, repeat=1))),
    (Code.UNVERIFIED, (make_cell("gym-sync", 1, STEADY, verdict="unverified"),)),
    (Code.UNVERIFIED, (make_cell("gym-sync", 1, STEADY, proof=CellProof("unverified", reason="it gave no answer")),)),
    (Code.INVALID_VALUES, (make_cell("gym-sync", 1, STEADY, proof=CellProof("identical", invalid="NaN")),)),
    (Code.OUTLIERS, (make_cell(steps=(*STEADY, *STEADY, 1002, 998, 1003, 800)),)),
    (Code.NO_RESETS, (make_cell("for-loop", 1, (9000,) * 4), make_cell("native", 1, (9000,) * 4))),
    (Code.FEW_RESETS, (make_cell(windows=(*window()[:3], Window(ns=10**9, rows=501, resets=1))),)),
    (Code.CHEAPER_STEPS, (make_cell("shm-async", 1, STEADY, proof=CHEAPER),)),
    (Code.SLOWER, (LOOP, make_cell("gym-sync", 1, STEADY))),
    (Code.FALLBACK, (make_cell("fast-sync", 1, STEADY, own_classes=REFUSED),)),
    (Code.OVERSUBSCRIBED, (make_cell(workers=4, steps=STEADY),)),
    (
        Code.WAITING,
        (
            make_cell("for-loop", 1, STEADY, timed=Timed(100, 30, 30, 5, 10, mean_ns=30, idle_ns=29)),
            make_cell("shm-sync", 4, STEADY, processes=2),
        ),
    ),
    (Code.SKIPPED, (make_cell(status="skipped", reason="no memory"),)),
]
# What is different on the machine.
OF_HOST: list[tuple[Code, dict[str, object]]] = [
    (Code.THROTTLED, {"quota_cpus": 1.5}),
    (Code.CLOCKS, {"governor": "powersave"}),
    (Code.CLOCKS, {"boost": True}),
    (Code.OVERSUBSCRIBED, {"topology": HYPERTHREADS}),
    (Code.VIRTUAL_MACHINE, {"virtual": True}),
]
RIGHT_NOW: list[tuple[Code, Surroundings]] = [
    (Code.DISTURBED, Surroundings(others_share=0.3)),
    (Code.MEMORY, Surroundings(shared_memory_bytes=0)),
    (Code.SKIPPED, Surroundings(missing=(ENVPOOL,))),
]


HEAD = make_header()
FOUND: list[tuple[Code, Iterable[Finding]]] = [
    *((code, findings(*cells)[-1]) for code, cells in OF_CELLS),
    *((code, tuple(of_host(msgspec.structs.replace(HEAD.host, **facts), NOWHERE))) for code, facts in OF_HOST),
    *((code, tuple(of_host(HEAD.host, now))) for code, now in RIGHT_NOW),
    (Code.IMPRECISE, summarise(Run(make_header(until=0.001), (LOOP,)))[0].findings),
    (Code.UNUSABLE, of_run(Run(HEAD, DISTURBED), summarise(Run(HEAD, DISTURBED)))),
    (Code.INCOMPLETE, of_run(Run(msgspec.structs.replace(HEAD, cells=2), (LOOP,)), ())),
    (Code.INCOMPLETE, of_run(Run(HEAD, (LOOP,), ("a.jsonl, line 3: truncated, ignored",)), ())),
]


@pytest.mark.parametrize(("code", "found"), FOUND)
def test_what_each_rule_finds_has_a_message_and_a_remedy(code: Code, found: Iterable[Finding]) -> None:
    (one, *_) = (finding for finding in found if finding.code is code)
    assert one.message
    assert one.remedy


def test_each_code_can_be_found() -> None:
    assert {code for code, _ in FOUND} == set(Code)


def test_the_table_never_goes_back_in_gravity_so_that_reports_list_findings_in_its_order() -> None:
    gravities = list(Gravity)
    ranks = [gravities.index(code.gravity) for code in Code]
    assert ranks == sorted(ranks)


def test_unknown_facts_are_not_reported() -> None:
    assert list(of_host(HEAD.host, NOWHERE)) == []
