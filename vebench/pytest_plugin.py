"""A plugin for pytest: fails a test if an environment or a backend became slower (docs/reference/python.md).

pytest imports it at each start, so it imports the rest of vebench on use.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from vebench.analysis.comparison import CellComparison
    from vebench.gates.gate import CheckPage

pytest.register_assert_rewrite("vebench.testing")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--vebench-budget``."""
    parser.getgroup("vebench").addoption(
        "--vebench-budget",
        metavar="TIME",
        help="longest time for which vector_env_rate measures a comparison (default: 60s, for startup or memory 5m)",
    )


@pytest.fixture
def vector_env_rate(request: pytest.FixtureRequest) -> Callable[..., VectorEnvRate]:
    """Return a function that makes a ``VectorEnvRate``: ``vector_env_rate(env, backends=..., workers=..., **plan)``.

    ``env`` is an environment, as for ``vebench run``. ``backends``, ``workers`` and ``plan`` are options of ``vebench
    compare``. By default, a plain loop steps one environment. Only ``VectorEnvRate.not_slower_than`` measures.
    """
    return lambda env, **plan: VectorEnvRate(env, plan, request)


@dataclass(frozen=True)
class VectorEnvRate:
    """The throughput of an environment on some backends, for a test that compares it with a baseline."""

    env: str
    plan: Mapping[str, Any]
    request: pytest.FixtureRequest

    def not_slower_than(
        self,
        run: str | Path | None = None,
        *,
        env: str = "",
        backend: str = "",
        python: str | Path = "",
        tolerance: float | str = 0.1,  # as TOLERANCE in plan/spec.py
        metric: str = "rate",
    ) -> None:
        """Measure. Fail the test if a backend is slower than the baseline, does different work, or fails.

        The test is skipped, with the reason, if the data are inconclusive after ``--vebench-budget``. Bad input fails
        it with one line. The property ``verdict`` in JUnit XML is the deciding verdict, ``failed`` for a failed cell.

        Parameters
        ----------
        run
            A run file, whose plan is measured again as ``vebench check`` does.
        env, backend, python
            The environment, the backend, or the path of the Python of the baseline. Name at least one. Baseline and
            candidate are interleaved, as ``vebench compare`` does.
        tolerance
            How much worse a backend may be, as a fraction, or by task: ``"10%,Pong=5%,Ant=off"``.
        metric
            The metrics to judge, joined by commas: ``rate``, ``startup``, ``memory``.
        """
        __tracebackhide__ = True
        from vebench.errors import InterruptedRunError, NotComparableError, VebenchError, one_line
        from vebench.reports import console

        if hasattr(self.request.config, "workerinput"):
            pytest.skip("not measured while other tests run: run this test without pytest-xdist (-n 0)")
        try:
            with warnings.catch_warnings(), console.without_progress():
                warnings.simplefilter("default")  # A test suite may turn warnings into errors.
                page = self._judged(run, env, backend, str(python), tolerance=tolerance, metric=metric)
        except InterruptedRunError:
            raise KeyboardInterrupt from None
        except NotComparableError as error:
            raise pytest.skip.Exception(one_line(str(error))) from None
        except VebenchError as error:
            raise pytest.fail.Exception(f"vebench: {one_line(str(error))}", pytrace=False) from None
        self._report(page)

    def _judged(self, run: str | Path | None, env: str, backend: str, python: str, **how: Any) -> CheckPage:
        from vebench.api import check, spec_of
        from vebench.backends.registry import REFERENCE
        from vebench.commands import session
        from vebench.errors import UsageError
        from vebench.gates.check import compared
        from vebench.plan.grammar import HOW_LONG, Option, seconds
        from vebench.plan.spec import METRICS, MOST_WORSE

        if (run is None) == (not (env or backend or python)):
            raise UsageError(
                "not_slower_than: give the path of a run file, or keywords for the baseline (env, backend, python)"
            )
        longest = Option("budget", ("--vebench-budget",), HOW_LONG, "TIME", "", seconds())
        usual = "60s" if how["metric"] == "rate" else "5m"
        budget = longest.value(self.request.config.getoption("--vebench-budget") or usual)
        folders: pytest.TempPathFactory = self.request.getfixturevalue("tmp_path_factory")
        world, output = session.World(), folders.mktemp("vebench") / "run.jsonl"
        if run is not None:
            if excess := [name for name in self.plan if name != "backends"]:
                raise UsageError(f"{', '.join(excess)}: leave this out, because the plan comes from {run}")
            only = {"envs": self.env, "backends": self.plan.get("backends", ()), "budget": budget}
            return check(run, output=output, world=world, **only, **how).page
        plan = {"backends": REFERENCE, "workers": 1, **self.plan, "envs": self.env}
        theirs = {**plan, "envs": env or self.env, "backends": backend or plan["backends"]}
        specs = spec_of("compare", theirs, "low"), spec_of("compare", plan, "low")
        pythons = python or sys.executable, sys.executable
        judged = {"tolerance": MOST_WORSE.value(how["tolerance"]), "metrics": METRICS.value(how["metric"])}
        return compared(pythons, specs, output, world, budget=budget, **judged)

    def _report(self, page: CheckPage) -> None:
        """Add the comparison to the test's properties. Fail or skip the test if it does not pass."""
        __tracebackhide__ = True
        from vebench.errors import one_line
        from vebench.gates.gate import NO_ANSWER, ORDER, Status
        from vebench.reports.formats.data import in_words

        def verdict(cell: CellComparison) -> str:
            return "failed" if cell.failed and cell.verdict != "slower" else cell.verdict

        # The cell with the worst verdict sets the properties. The fixture record_property would do the same, but it
        # warns unless the family of the JUnit XML is xunit1 or legacy.
        cells = sorted(page.comparison.cells, key=lambda cell: ORDER.index(verdict(cell)))
        worst = cells[0]
        properties: dict[str, object] = {"verdict": verdict(worst)}
        if worst.ratio:
            properties |= {"ratio": worst.ratio.median, "low": worst.ratio.low, "high": worst.ratio.high}
        self.request.node.user_properties.extend(properties.items())
        if page.status == Status.DONE:
            return
        fails = page.status == Status.WORSE
        deciding = ("slower", "failed") if fails else (*NO_ANSWER, "inconclusive")
        reasons: dict[str, str] = {}
        for cell in cells:
            if verdict(cell) in deciding:  # all metrics of a cell may have the same reason
                reasons.setdefault(cell.failed or in_words(cell), in_words(cell))
        text = one_line("; ".join(reasons.values()))
        if fails:
            pytest.fail(f"vebench: {text}, tolerance {page.comparison.tolerance.label}", pytrace=False)
        pytest.skip(text)
