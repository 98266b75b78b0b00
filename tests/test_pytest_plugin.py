"""The plugin for pytest: a test that fails if sampling became slower, and is skipped if that cannot be decided."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import scipy.special  # noqa: F401 - a suite in this process forgets what it imports, and numpy cannot be imported twice
from support.fakes import FakeClock, FakeStart, Script, failing, interrupted, steady
from support.paced import paced, world_of

from vebench import measure
from vebench.commands import session
from vebench.commands.session import World
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec

pytest_plugins = "pytester"

Scripted = Callable[[Cell, RunSpec], Script]
Suite = Callable[..., pytest.RunResult]
ROOT = Path(__file__).parents[1]
FAST = 'vector_env_rate("CartPole").not_slower_than(env="Acrobot")'


def as_fast(factor: float, noise: float = 0.003) -> Scripted:
    """Return the script of cells whose rate is ``factor`` times the baseline's, and those of the baseline."""
    return paced(lambda cell: 1e-5 / (factor if cell.interpreter.side == "B" else 1.0), noise)


def world(script: Scripted, start: FakeStart | None = None) -> World:
    return replace(world_of(script, start=start), clock=FakeClock(0.1))


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Return what runs a suite of one test in a world, and this plugin without others, installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(body: str, world: World, *options: str, before: str = "", also: str = "") -> pytest.RunResult:
        monkeypatch.setattr(session, "World", lambda: world)
        pytester.makepyfile(test_rate=f"import pytest\n{before}\ndef test_rate(vector_env_rate{also}):\n    {body}\n")
        return pytester.runpytest_inprocess("-p", "vebench.pytest_plugin", "--junitxml=junit.xml", "-rs", *options)

    return run


def properties() -> dict[str, str]:
    found = ET.parse("junit.xml").iter("property")
    return {one.attrib["name"]: one.attrib["value"] for one in found}


@pytest.mark.parametrize(
    ("script", "body", "outcome", "verdict"),
    [
        (as_fast(1.0), FAST, "passed", "same"),
        (as_fast(0.5), FAST, "failed", "slower"),
        (as_fast(0.5), FAST.replace('"Acrobot"', '"Acrobot", tolerance=0.6'), "passed", "same"),
        (as_fast(1.0, noise=1.0), FAST, "skipped", "inconclusive"),
    ],
)
def test_a_test_has_the_outcome_of_the_verdict_and_says_so_in_junit(
    suite: Suite, script: Scripted, body: str, outcome: str, verdict: str
) -> None:
    done = suite(body, world(script))
    done.assert_outcomes(**{outcome: 1})
    told = properties()
    assert (told["verdict"], float(told["low"]) < float(told["ratio"]) < float(told["high"])) == (verdict, True)
    if outcome == "failed":
        assert float(told["ratio"]) == pytest.approx(0.5, rel=0.02)
        done.stdout.re_match_lines([r"vebench: CartPole-v1, for-loop, 1 worker: slower, ratio 0\.(49|50).*10%$"])
    if outcome == "skipped":
        done.stdout.re_match_lines(
            [r"SKIPPED .*: CartPole-v1, for-loop, 1 worker: inconclusive, .*: the interval includes[^:]*$"]
        )


def test_passes_are_added_until_it_is_decided_or_the_budget_is_spent(suite: Suite) -> None:
    counts = {}
    for budget in ("1s", "60s"):
        start = FakeStart()
        suite(FAST, world(as_fast(1.0, noise=0.06), start), "--vebench-budget", budget)
        counts[budget] = len(start.started)
    assert counts["1s"] < counts["60s"]


def test_each_cell_is_interleaved_with_its_cell_in_the_other_python(suite: Suite) -> None:
    start = FakeStart()
    named = 'vector_env_rate("CartPole", backends="gym-sync,for-loop", workers=[1, 2], passes=2)'
    body = f'{named}.not_slower_than(env="Acrobot", python="old")'
    suite(body, world(as_fast(1.0), start)).assert_outcomes(passed=1)
    assert {(cell.interpreter.side, python) for cell, python in start.started} == {("A", "old"), ("B", sys.executable)}
    groups: dict[object, dict[str, Cell]] = {}
    for cell, _ in start.started:
        groups.setdefault((cell.repeat, cell.group), {})[cell.interpreter.side] = cell
    assert {(pair["A"].task.id, pair["B"].task.id) for pair in groups.values()} == {("Acrobot-v1", "CartPole-v1")}
    for one, other in ((pair["A"], pair["B"]) for pair in groups.values()):
        assert (one.backend, one.workers, one.cpus) == (other.backend, other.workers, other.cpus)


def test_backends_can_be_parameters_and_each_is_judged_by_itself(suite: Suite) -> None:
    def seconds(cell: Cell) -> float:
        return {"gym-async": 3e-5}.get(cell.backend.name, 1e-5) * cell.shape.batch_size

    done = suite(
        'vector_env_rate("CartPole", backends=backend, workers=2).not_slower_than(backend="for-loop")',
        world(paced(seconds, 0.003)),
        before='@pytest.mark.parametrize("backend", ["gym-sync", "gym-async"])',
        also=", backend",
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.re_match_lines([r"vebench: CartPole-v1, gym-async, 2 workers: slower, "])


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "passed"), (0.25, "failed")])
def test_the_plan_of_a_run_file_is_measured_again(suite: Suite, factor: float, outcome: str) -> None:
    def measured_at(factor: float) -> World:
        return world(paced(lambda cell: 1e-5 / (factor if cell.backend.name == "gym-sync" else 1.0), 0.003))

    measure(
        "CartPole", workers=1, backends="gym-sync", output="base.jsonl", proof="off", passes=10, world=measured_at(1.0)
    )
    done = suite('vector_env_rate("CartPole", backends="gym-sync").not_slower_than("base.jsonl")', measured_at(factor))
    done.assert_outcomes(**{outcome: 1})


@pytest.mark.parametrize("workers", ["1", "[1, 2]"])
def test_a_backend_that_fails_where_the_baseline_does_not_fails_the_test(suite: Suite, workers: str) -> None:
    def broken(cell: Cell, spec: RunSpec) -> Script:
        return (failing("it broke") if (cell.interpreter.side, cell.workers) == ("B", 1) else steady)(cell, spec)

    done = suite(FAST.replace('"CartPole"', f'"CartPole", workers={workers}'), world(broken))
    done.assert_outcomes(failed=1)
    done.stdout.re_match_lines([r"vebench: CartPole-v1, for-loop, 1 worker: missing: B: failed: it broke"])
    assert properties()["verdict"] == "failed"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('vector_env_rate("CartPole", wrkers=2).not_slower_than(env="Acrobot")', "did you mean workers"),
        ('vector_env_rate("CartPole", workers=0).not_slower_than(env="Acrobot")', "--workers 0"),
        ('vector_env_rate("CartPole").not_slower_than(backend="gym-snyc")', "did you mean gym-sync"),
        ('vector_env_rate("CartPole").not_slower_than(backend="ceiling")', "reference rows"),
        ('vector_env_rate("CartPole").not_slower_than(env="CartPole,Acrobot")', "number of environments"),
        ('vector_env_rate("CartPole").not_slower_than(env="Acrobot", tolerance=2)', "--tolerance 2"),
        ('vector_env_rate("CartPole").not_slower_than("missing.jsonl")', "missing.jsonl"),
        (
            'vector_env_rate("CartPole", workers=2).not_slower_than("missing.jsonl")',
            "workers: leave this out, because the plan comes from missing.jsonl",
        ),
        ('vector_env_rate("CartPole").not_slower_than()', "give the path of a run file"),
    ],
)
def test_bad_input_fails_the_test_with_one_line(suite: Suite, body: str, line: str) -> None:
    done = suite(body, world(as_fast(1.0)))
    done.assert_outcomes(failed=1)
    _, _, after = done.stdout.str().partition("___ test_rate ___")
    (shown,) = re.findall(r"^[^_=\n].*", after.partition("\n- generated")[0], re.MULTILINE)
    assert (shown.startswith("vebench: "), line in shown) == (True, True)


def test_a_budget_of_no_time_fails_the_test(suite: Suite) -> None:
    suite(FAST, world(as_fast(1.0)), "--vebench-budget", "long").assert_outcomes(failed=1)


def test_nothing_is_measured_beside_other_tests(suite: Suite, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_configure(config):\n    config.workerinput = {}\n")  # as pytest-xdist does
    start = FakeStart()
    suite(FAST, world(as_fast(1.0), start)).assert_outcomes(skipped=1)
    assert start.started == []


def test_ctrl_c_ends_the_suite(suite: Suite) -> None:
    with pytest.raises(KeyboardInterrupt):
        suite(FAST, world(interrupted))


def test_a_suite_that_does_not_use_the_fixture_imports_nothing_more(pytester: pytest.Pytester) -> None:
    plugin = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]["vebench"]
    pytester.makepyfile("def test_other(): pass")
    script = (
        f"import pytest, sys; assert pytest.main(['-p', '{plugin}', '-q']) == 0; "
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] in ('vebench', 'numpy', 'msgspec')))"
    )
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "vebench vebench.pytest_plugin"
    assert " vebench " not in done.stdout.rpartition("\n1 passed")[0]


def test_two_environments_are_measured_for_real(suite: Suite) -> None:
    named = 'vector_env_rate("CartPole", duration=0.02, warmup=0.01, windows=2, passes=2)'
    done = suite(f'{named}.not_slower_than(env="gymnasium:CartPole-v0")', World(), "--vebench-budget=1s")
    assert sum(done.parseoutcomes().values()) == 1
    assert float(properties()["ratio"]) > 0
