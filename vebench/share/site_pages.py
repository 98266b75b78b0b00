"""A static site from submissions, for readers of figures from many machines. It is rendered from manifests alone.

Whatever a submission says is a stranger's: Jinja2 escapes it, the policy of the pages lets no script run but ours, and
no path is made of it but by ``slug``. The same submissions give the same bytes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from itertools import chain
from math import ceil, floor, log2, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vebench import __version__
from vebench.analysis.statistics import Estimate
from vebench.backends.entry import MAX_COUNT
from vebench.errors import RunFileError
from vebench.plan.suites import FROZEN
from vebench.plan.verdicts import SAME
from vebench.reports import figures
from vebench.reports.formats import html
from vebench.reports.plots import LONGEST, SERIES
from vebench.share.folder import FILES, SUBMISSION_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from vebench.share.folder import InstalledPackage, Interval, MachineRecord, Manifest, Result, Submission

    Series = dict[str, list[tuple[float, Interval]]]  # by name, each at its place on the axis

_TEMPLATES = Path(__file__).with_name("templates")
FOLDERS = ("backends", "machines", "submissions", "tasks")
_LEAST, _MOST = 1e-3, 1e12  # frames/s: axes end somewhere
_LONGEST_SLUG = 40
# Of figures, in their own units: the whole width, what is around axes, how far apart names are, the height of axes.
_WIDTH, _LEFT, _BESIDE, _EDGE, _LABEL, _HEIGHT = 400.0, 32.0, 116.0, 8.0, 12.0, 200.0
# The steps of a logarithmic axis within a decade, from which ratio of the highest value to the lowest.
_STEPS = ((1e3, (1.0,)), (30.0, (1.0, 3.0)), (0.0, (1.0, 2.0, 5.0)))


class Group(NamedTuple):
    """What figures can be compared within: a suite with its plan, a division, and a task."""

    suite: str
    division: str
    env: str


@dataclass(frozen=True, eq=False)
class Entry:
    """A submission that the site shows, without its run. ``slug`` names its folder in ``submissions/``."""

    slug: str
    started: datetime
    manifest: Manifest
    machine: MachineRecord
    packages: Mapping[str, InstalledPackage]

    @classmethod
    def of(cls, submission: Submission) -> Entry:
        """Return what to show of a submission. Raises RunFileError if it cannot be shown, or is not what it was."""
        manifest = submission.manifest
        if manifest.schema != SUBMISSION_SCHEMA:
            raise RunFileError(f"schema {manifest.schema} is unknown to vebench {__version__}")
        if damaged := submission.damaged:
            raise RunFileError(f"changed since it was submitted: {', '.join(damaged)}")
        try:
            started = datetime.fromisoformat(manifest.started).astimezone(UTC)
        except (ValueError, OverflowError):
            raise RunFileError("started is no date and time") from None
        if started > datetime.now(UTC) + timedelta(days=1):
            raise RunFileError("it starts in the future")
        rates = [one.frames_per_second.median for one in manifest.results if one.frames_per_second]
        ratios = [one.speedup.median for one in manifest.results if one.speedup]
        if not rates or min(rates) < _LEAST or max([*rates, *ratios]) > _MOST:
            raise RunFileError(f"there is no rate, or one outside {_LEAST:g} to {_MOST:g} frames/s")
        if not all(1 <= one.workers <= MAX_COUNT and one.num_envs <= MAX_COUNT**2 for one in manifest.results):
            raise RunFileError("there is an impossible number of workers or environments")
        return cls(slug(submission.name), started, manifest, submission.machine, submission.packages)

    @property
    def suite(self) -> str:
        """The suite, with the digest of its plan if that is not the plan which vebench knows under this name."""
        known, plan = FROZEN.get(self.manifest.suite), self.manifest.plan
        return self.manifest.suite if known and known.digest == plan else f"{self.manifest.suite}, plan {plan}"

    @property
    def title(self) -> str:
        """The machine in words."""
        host = self.machine.host
        return f"{_short(host.cpu_model, 2 * LONGEST)}, {figures.counted(host.usable_cpus, 'CPU')}"

    @property
    def page(self) -> str:
        """The path of the machine's page."""
        return f"machines/{slug(self.machine.id)}.html"

    @cached_property
    def groups(self) -> dict[Group, list[Result]]:
        """The results of each task."""
        suite, division = self.suite, self.manifest.division
        return figures.by_key((Group(suite, division, one.env), one) for one in self.manifest.results)


class Row(NamedTuple):
    """A machine with a backend at one number of workers. ``places`` are the first and last that it may have."""

    entry: Entry
    result: Result
    places: tuple[int, int] | None = None


def slug(name: str) -> str:
    """Return a name for paths and addresses: the name itself if it is one, else what is left of it with a digest."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_LONGEST_SLUG].strip("-")
    return words if words == name else f"{words}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:24]}"


def rate_of(result: Result) -> Interval | None:
    """Return the rate of a result that is compared with others: without a doubt, for work that is proven."""
    return None if result.note or result.verdict not in SAME else result.frames_per_second


def tables(entries: Iterable[Entry]) -> dict[Group, list[Row]]:
    """Return the rows of each task, the highest speedup first: the newest of each machine with each backend.

    Each is at its best number of workers. Reference rows are left out.
    """
    newest: dict[Group, dict[tuple[str, str], Row]] = defaultdict(dict)
    for entry in sorted(entries, key=lambda entry: (entry.started, entry.slug)):
        for group, results in entry.groups.items():
            for best in _best(results).values():
                newest[group][entry.machine.id, best.backend] = Row(entry, best)
    return {group: _placed(newest[group].values()) for group in sorted(newest)}


def _best(results: Iterable[Result]) -> dict[str, Result]:
    """Return the best number of workers of each backend: one that counts, if any does."""

    def worth(result: Result) -> tuple[bool, float]:
        return rate_of(result) is not None, _median(result.frames_per_second)

    best: dict[str, Result] = {}
    for result in results:
        if not result.reference_row and (result.backend not in best or worth(result) > worth(best[result.backend])):
            best[result.backend] = result
    return best


def _placed(rows: Collection[Row]) -> list[Row]:
    """Return rows in order, each with its places by speedup: those whose intervals overlap share theirs."""
    ratios = {id(row): row.result.speedup for row in rows if rate_of(row.result)}
    ends = {key: (ratio.low, ratio.high) for key, ratio in ratios.items() if ratio and ratio.low and ratio.high}
    lows, highs = (sorted(end) for end in zip(*ends.values(), strict=True)) if ends else ([], [])
    places = {
        key: (1 + len(ends) - bisect_right(lows, high), len(ends) - bisect_left(highs, low))
        for key, (low, high) in ends.items()
    }

    def order(row: Row) -> tuple[bool, float, float, str, str]:
        by_value = -_median(row.result.speedup), -_median(row.result.frames_per_second)
        return id(row) not in places, *by_value, row.entry.machine.id, row.result.backend

    return [row._replace(places=places.get(id(row))) for row in sorted(rows, key=order)]


def pages(entries: Sequence[Entry], left_out: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pages of at least one entry by path, and ``site.json``. ``left_out``: folders, each with its reason."""
    found = tables(entries)
    first = max(found, key=lambda group: (group.division == "reference", len(found[group])))
    paths = {group: f"tasks/{slug(repr(tuple(group)))}.html" for group in found} | {first: "index.html"}
    machines = figures.by_key((entry.page, entry) for entry in sorted(entries, key=lambda entry: entry.title))
    backends: dict[str, dict[Group, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for group, row in ((group, row) for group, rows in found.items() for row in rows):
        backends[row.result.backend][group].append(row)
    of_backends = {name: f"backends/{slug(name)}.html" for name in sorted(backends)}
    environment = html.environment(str, _TEMPLATES)
    environment.filters.update(
        short=_short,
        rate=lambda rate: figures.rate(_estimate(rate)) if rate else figures.DASH,
        times=lambda ratio: figures.times(_estimate(ratio)) if ratio else figures.DASH,
        key=lambda interval: f"{interval.median:.6g}" if interval else "",
        by_suite=lambda groups: figures.by_key((group[:2], group) for group in groups).items(),
        size=figures.size,
        compared=rate_of,
    )
    scripts = (html.TEMPLATES / "report.js", _TEMPLATES / "site.js")
    styles = (html.TEMPLATES / "report.css", _TEMPLATES / "site.css")
    script = "".join(path.read_text(encoding="utf-8") for path in scripts)
    environment.globals.update(
        css="".join(path.read_text(encoding="utf-8") for path in styles),
        script=script,
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        version=__version__,
        colours=SERIES,
        paths=paths,
        backends=of_backends,
        machines={path: of_one[0] for path, of_one in machines.items()},
        submissions=len(entries),
        left_out=left_out,
        files=FILES,
    )

    def render(template: str, path: str, **content: object) -> tuple[str, str]:
        up = "../" * path.count("/")
        return path, environment.get_template(f"{template}.html.jinja").render(content, path=path, up=up)

    for group, rows in found.items():
        yield render("task", paths[group], group=group, rows=rows, charts=_over_machines(rows))
    for path, of_one in machines.items():
        yield render("machine", path, **_of_machine(sorted(of_one, key=lambda entry: entry.started)))
    for name, path in of_backends.items():
        yield render("backend", path, name=name, tables=backends[name])
    yield "site.json", _data(found, left_out)


def _over_machines(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the figure of a task by its title; none if nothing counts."""
    series: Series = defaultdict(list)
    for row in sorted(rows, key=lambda row: _median(row.result.frames_per_second)):
        if rate := rate_of(row.result):
            series[row.result.backend].append((len(series[row.result.backend]), rate))
    last = max((points[-1][0] for points in series.values()), default=0)
    labels: dict[float, str] = {0.0: "slowest", last: "fastest"} if last else {0.0: ""}
    return {"frames/s by backend, machines in the order of their rates": _curves(series, labels)} if series else {}


def _of_machine(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what the page of one machine shows, by its submissions, the newest last."""
    parts = []
    for group in sorted({*chain(*(entry.groups for entry in entries))}):
        having = [entry for entry in entries if group in entry.groups]
        results = having[-1].groups[group]
        workers = _series((log2(one.workers), one) for one in sorted(results, key=lambda one: one.workers))
        best = ((entry.started.timestamp(), one) for entry in having for one in _best(entry.groups[group]).values())
        charts, days = {}, _series(best)
        if workers:
            charts["frames/s by workers"] = _curves(workers, {log2(one.workers): f"{one.workers}" for one in results})
        if len(times := sorted({x for points in days.values() for x, _ in points})) > 1:
            ends = {x: f"{datetime.fromtimestamp(x, UTC):%Y-%m-%d}" for x in (times[0], times[-1])}
            charts["highest frames/s of each submission"] = _curves(days, ends)
        parts.append({"group": group, "entry": having[-1], "results": results, "charts": charts})
    return {"entries": entries, "newest": entries[-1], "host": entries[-1].machine.host, "parts": parts}


def _series(results: Iterable[tuple[float, Result]]) -> Series:
    """Return the rates that are compared, by backend."""
    return figures.by_key((one.backend, (x, rate)) for x, one in results if (rate := rate_of(one)))


def _axis(rates: Iterable[Interval]) -> list[float]:
    """Return the ticks of a logarithmic axis, from below all medians to above. Wide intervals may leave it."""
    medians = [rate.median for rate in rates]
    low, high = min(medians) / 1.1, max(medians) * 1.1
    steps = next(steps for ratio, steps in _STEPS if high >= ratio * low)
    exponents = range(floor(log10(low)) - 1, ceil(log10(high)) + 2)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    return ticks[bisect_right(ticks, low) - 1 : bisect_left(ticks, high) + 1]


def _curves(series: Series, labels: Mapping[float, str]) -> dict[str, Any]:
    """Return a figure of rates over what has these ``labels``: for each series a line with intervals and a name."""
    ticks = _axis(rate for points in series.values() for _, rate in points)
    places = sorted({*labels, *(x for points in series.values() for x, _ in points)})
    height = max(_HEIGHT, _LABEL * (len(series) + 1))

    def across(x: float) -> float:
        share = (x - places[0]) / (places[-1] - places[0]) if len(places) > 1 else 0.5
        return _LEFT + _EDGE + (_WIDTH - _LEFT - _BESIDE - 2 * _EDGE) * share

    def up(rate: float) -> float:  # ends of intervals that are outside are drawn at the edge
        share = log10(max(rate, ticks[0]) / ticks[0]) / log10(ticks[-1] / ticks[0])
        return _EDGE + height * (1 - min(share, 1.0))

    lines: list[dict[str, Any]] = []
    apart = min(2.0, 2 * _EDGE / len(series))  # so that intervals at one place can be told from each other
    for index, (name, points) in enumerate(sorted(series.items())):
        beside = apart * (index - (len(series) - 1) / 2)
        at = [f"{across(x) + beside:.1f} {up(rate.median):.1f}" for x, rate in points]
        spans = [(across(x) + beside, rate.low, rate.high) for x, rate in points]
        lines.append(
            {
                "name": name,
                "colour": index % len(SERIES),
                "line": f"M{'L'.join(at)}",
                "marks": "".join(f"M{place}h0" for place in at),
                "spans": "".join(f"M{x:.1f} {up(low):.1f}V{up(high):.1f}" for x, low, high in spans if low and high),
                "from": at[-1],
                "y": up(points[-1][1].median),
            }
        )
    lines.sort(key=lambda line: line["y"])
    free = _EDGE - _LABEL
    for above, line in enumerate(reversed(lines)):  # no name covers another one, nor the axis
        line["y"] = min(line["y"], _EDGE + height - _LABEL * above)
    for line in lines:
        line["y"] = free = max(line["y"], free + _LABEL)
    shown: list[tuple[float, str]] = []
    for x, label in sorted(labels.items()):
        if not shown or across(x) > shown[-1][0] + 2 * _LABEL:
            shown.append((across(x), label))
    return {"lines": lines, "height": height, "across": shown, "up": [(up(tick), _on_axis(tick)) for tick in ticks]}


def _on_axis(rate: float) -> str:
    unit, name = next((unit, name) for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, "")) if rate >= unit)
    return f"{rate / (unit or 1.0):g}{name}"


def _data(found: Mapping[Group, Sequence[Row]], left_out: Sequence[tuple[str, str]]) -> str:
    """Return the data behind the tables."""

    def of(row: Row) -> dict[str, object]:
        entry = row.entry
        named = {"machine": entry.machine.id, "title": entry.title, "page": entry.page}
        made = {"started": entry.started, "vebench": entry.manifest.vebench, "submission": f"submissions/{entry.slug}"}
        return {**named, **msgspec.structs.asdict(row.result), "places": row.places, **made}

    tasks = [{**group._asdict(), "rows": [*map(of, rows)]} for group, rows in found.items()]
    left = [{"folder": name, "reason": reason} for name, reason in left_out]
    return msgspec.json.encode({"vebench": __version__, "tasks": tasks, "left_out": left}).decode() + "\n"


def _estimate(interval: Interval) -> Estimate:
    return Estimate(interval.median, interval.low, interval.high)


def _median(interval: Interval | None) -> float:
    return interval.median if interval else 0.0


def _short(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
