"""Charts to draw."""

from vebench.analysis.statistics import Estimate
from vebench.reports.document import Chart, ChartLine

WORKERS = (1, 2, 4, 8, 16, 32, 64)


def around(median: float, share: float = 0.05) -> Estimate:
    """Return an estimate with an interval of this share to either side."""
    return Estimate(median, median * (1 - share), median * (1 + share))


def make_chart(*names: str, **fields: object) -> Chart:
    """Return a chart with a measured series for each name, the ceiling, the ideal and two marks."""
    lines = [
        ChartLine(name, tuple((float(w), around(10_000 * w**0.8 + 500 * index)) for w in WORKERS))
        for index, name in enumerate(names)
    ]
    settings: dict[str, object] = {
        "group": "ALE/Pong-v5",
        "title": "ALE/Pong-v5: frames/s",
        "series": (
            *lines,
            ChartLine("ceiling", tuple((float(w), around(22_000.0 * w)) for w in WORKERS), "bound"),
            ChartLine("ideal", ((1.0, Estimate(10_000.0)), (64.0, Estimate(640_000.0))), "ideal"),
        ),
        "marks": ((16.0, "cores end"), (32.0, "CPUs end")),
    }
    return Chart(**{**settings, **fields})  # type: ignore[arg-type]
