"""Functions that write numbers, cells and file names in reports, and terms that all reports share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import PurePath
from typing import Any, TypeVar

from vebench.analysis.cell import CellSummary, Code, Finding
from vebench.analysis.comparison import CellComparison, GroupComparison
from vebench.analysis.statistics import Estimate
from vebench.errors import one_line
from vebench.plan.cells import CellKey
from vebench.plan.grammar import COSTS, LearnerStep
from vebench.reports.document import Document, Remark

Size = tuple[int, int]  # the number of workers, and of environments per worker

_K = TypeVar("_K")
_V = TypeVar("_V")
DASH = "-"  # the text of a place where no value applies
SAME_WORK = "same work"  # the head of the column of work verdicts


def number(value: float) -> str:
    """Return ``value`` with at least two significant digits: ``13,120``, ``42.3``, ``0.41``, ``0.0042``."""
    for limit, digits in ((99.95, 0), (9.995, 1), (0.0995, 2)):
        if value >= limit:
            return f"{value:,.{digits}f}"
    return f"{value:.2g}"


def spread(estimate: Estimate) -> str:
    """Return the larger half of the interval, relative to the median: ``±1.4%``, or ``(no interval)``."""
    if estimate.low is None or estimate.high is None:
        return "(no interval)"
    half = estimate.half_width
    if half is None:
        return f"(to {number(estimate.high)})"
    if half > 1:  # more digits are useless
        return "±>100%"
    if 0 < half < 0.0005:  # noqa: PLR2004 - it would be rounded to 0
        return "±<0.1%"
    return f"±{half:.1%}" if half < 0.1 else f"±{half:.0%}"  # noqa: PLR2004 - two digits


def distance(estimate: Estimate) -> str:
    """Return the spread in parentheses, to follow a number in a sentence: ``(±1.4%)``."""
    text = spread(estimate)
    return text if text.startswith("(") else f"({text})"


def in_sentence(estimate: Estimate, unit: str) -> str:
    """Return an estimate for a sentence, with its unit: ``13,120 frames/s (±1.4%)``. An exact estimate has no ±."""
    exact = estimate.low == estimate.median == estimate.high
    return f"{number(estimate.median)}{unit}{'' if exact else f' {distance(estimate)}'}"


def with_spread(estimate: Estimate, unit: str = "") -> str:
    """Return an estimate and its interval: ``13,120 ±1.4%``, ``2.31x ±1.9%``. An exact estimate has no ±."""
    exact = estimate.low == estimate.median == estimate.high
    return f"{number(estimate.median)}{unit}{'' if exact else f' {spread(estimate)}'}"


def ratio_text(ratio: Estimate) -> str:
    """Return a ratio of two runs, with its interval: ``0.921 ±1.9%``."""
    return f"{ratio.median:.3f} {spread(ratio)}"


def time(nanoseconds: Estimate) -> str:
    """Return a short time and its interval: ``0.41 µs ±1.4%``, ``12.3 ms ±2.0%``."""
    return f"{short_time(nanoseconds.median)} {spread(nanoseconds)}"


def short_time(nanoseconds: float) -> str:
    """Return a short time in the unit that fits it: ``41 µs``, ``1.23 ms``, ``2.5 s``."""
    for limit, unit in ((1e9, "s"), (1e6, "ms")):
        if nanoseconds >= limit:
            return f"{number(nanoseconds / limit)} {unit}"
    return f"{number(nanoseconds / 1e3)} µs"


def long_time(seconds: float) -> str:
    """Return a duration for readers: ``45 s``, ``5 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, of_hour = divmod(minutes, 60)
    if hours:
        return f"{hours} h {of_hour:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def byte_size(count: int) -> str:
    """Return a number of bytes for readers: ``27.5 MiB``."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:  # noqa: PLR2004 - the step between units
            break
        value, unit = value / 1024, larger
    return f"{value:.{4 if value >= 1000 else 3}g} {unit}"  # noqa: PLR2004 - 1023, and no exponent


def sparkline(values: Sequence[float]) -> str:
    """Return the last 30 values, which are logarithms, as one bar character each."""
    bars = "▁▂▃▄▅▆▇"  # an odd number, so that steady values have the middle bar
    last = values[-30:]
    span = max(max(last) - min(last), 0.2)  # smaller spans would make noise look like a change
    lowest = (max(last) + min(last) - span) / 2
    return "".join(bars[min(int((value - lowest) / span * len(bars)), len(bars) - 1)] for value in last)


def counted(count: int, noun: str) -> str:
    """Return a number of things: ``1 worker``, ``2 workers``, ``2 processes``."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('s') else 's'}"


def by_key(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Return the values of each key, each once. Keys and values are in the order of their first pairs."""
    groups: dict[_K, dict[_V, None]] = {}
    for key, value in pairs:
        groups.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in groups.items()}


def with_names(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return each text once, after its names: ``for-loop, gym-sync: text``. Pairs are (text, name)."""
    return [f"{', '.join(names)}: {text}" for text, names in by_key(pairs).items()]


def times_envs(envs_per_worker: int) -> str:
    """Return `` x 4 envs``, to follow a number of workers; empty for one environment per worker."""
    return f" x {counted(envs_per_worker, 'env')}" if envs_per_worker > 1 else ""


def verdict_word(judged: CellComparison | GroupComparison) -> str:
    """Return the verdict for readers: memory is larger or smaller, everything else is slower or faster.

    Data keep ``same``, which readers would take for "equally fast".
    """
    metric = judged.metric if isinstance(judged, CellComparison) else judged.key.metric
    words = {"same": "not slower"}
    if metric == "memory":
        words = {"slower": "larger", "faster": "smaller", "same": "not larger"}
    return words.get(judged.verdict, judged.verdict)


def cell_name(key: CellKey, metric: str = "") -> str:
    """Return a cell's name, with a metric that is a cost: ``ALE/Pong-v5, shm-sync, 2 workers, memory``."""
    return f"{one_line(key.env)}, {one_line(key.backend)}, {key.size}{f', {metric}' if metric in COSTS else ''}"


def explained(reasons: Iterable[tuple[str, str | None, CellKey]]) -> Iterator[Remark]:
    """Yield each label and reason once, with its cells and a remedy. The remedy follows ``; `` in the reason."""
    groups = by_key(((label, one_line(why)), cell_name(key)) for label, why, key in reasons if why)
    for (label, why), names in groups.items():
        text, _, remedy = why.partition("; ")
        yield Remark(label, text, tuple(names), remedy or "measure it again, on both sides if necessary")


def grouped(cells: Sequence[CellSummary]) -> dict[Finding, tuple[str, ...]]:
    """Return the findings of all cells, the gravest first, each with a line for each task: ``Pong: gym-sync at ...``.

    Tasks with the same text share a line.
    """
    groups: dict[Finding, list[CellSummary]] = {}
    for cell in cells:
        for finding in cell.findings:
            groups.setdefault(finding, []).append(cell)
    labels = by_key((cell.env, cell.label) for cell in cells)
    swept = by_key((cell.env, (cell.workers, cell.envs_per_worker)) for cell in cells)
    found = {}
    for finding in sorted(groups, key=lambda finding: tuple(Code).index(finding.code)):
        of_env = by_key((cell.env, (cell.label, (cell.workers, cell.envs_per_worker))) for cell in groups[finding])
        texts = []
        for env, members in of_env.items():
            words = by_key((sizes(had, swept[env]), label) for label, had in by_key(members).items())
            parts = []
            for size, own in words.items():
                who = "every backend" if len(own) == len(labels[env]) > 1 else ", ".join(own)
                parts.append(f"{who} at {size}")
            texts.append(("; ".join(parts), env))
        found[finding] = tuple(with_names(texts))
    return found


def sizes(members: Iterable[Size], swept: Iterable[Size]) -> str:
    """Describe the sizes of some cells among all ``swept``: ``4..256 workers``, ``1, 4 workers x 16 envs``."""
    every_workers, every_envs = (sorted(set(counts)) for counts in zip(*swept, strict=True))
    by_envs = by_key((envs, workers) for workers, envs in sorted(set(members)))
    parts = []
    for counts, envs in by_key((tuple(counts), envs) for envs, counts in sorted(by_envs.items())).items():
        of_each = f" x {_range(envs, every_envs, 'env')}" if envs != every_envs else ""
        parts.append(f"{_range(counts, every_workers, 'worker')}{of_each}")
    return " and ".join(parts)


def _range(counts: Sequence[int], swept: list[int], noun: str) -> str:
    """Return ``4..256 workers`` if at least three counts are neighbours in ``swept``, else ``1, 4 workers``."""
    first = swept.index(counts[0])
    fewest = 3  # the fewest numbers that are written as a range
    if len(counts) >= fewest and swept[first : first + len(counts)] == list(counts):
        return f"{counts[0]}..{counts[-1]} {noun}s"
    return f"{', '.join(map(str, counts))} {noun}{'' if list(counts) == [1] else 's'}"


def learner_words(learner: LearnerStep) -> str:
    """Return in words the time of learning, and the steps that it learns from."""
    whole = "each batch" if learner.steps is None else f"each {counted(learner.steps, 'step')}"
    threads = f" with {counted(learner.threads, 'thread')}" if learner.threads else ""
    return f"{short_time(learner.seconds * 1e9)} for {whole}{threads}"


def without_folders(names: Iterable[str]) -> Callable[[_V], _V]:
    """Return a function that replaces each absolute path by its last part, in a text or in all texts of a document.

    ``names`` are file names that texts may quote. They may contain any characters.
    """
    kernel = r"(?!(?:dev|proc|sys)(?:/|\b))"
    # A path between quotation marks may have spaces. Any other path ends at the first character that few names have.
    quoted = re.compile(rf"""(?<=['"`])/{kernel}[^'"`/][^'"`]*(?=['"`])""")
    plain = r"""[^\s/'"`|<>,;:()\[\]{}]"""
    # A path does not begin within a word, an address or a tag: frames/s, ./a, ~/a, https://host/a, </a>.
    bare = re.compile(rf"(?:file://|(?<![\w./~<-]))/{kernel}(?:(?:{plain}+/)+{plain}*|{plain}{{2,}})")
    absolute = sorted((name for name in names if PurePath(name).is_absolute()), key=len, reverse=True)

    def in_text(text: str) -> str:
        for name in absolute:
            text = text.replace(name, PurePath(name).name)
        for path in (quoted, bare):
            text = path.sub(lambda match: PurePath(match[0]).name, text)
        return text

    def replaced(value: Any) -> Any:
        if type(value) is str:  # enums stay unchanged
            return in_text(value)
        if type(value) is tuple:
            return tuple(map(replaced, value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{field.name: replaced(getattr(value, field.name)) for field in fields(value)})
        return value

    return replaced


def shortened(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return documents in which each absolute path is replaced by its last part."""
    return without_folders(document.file for document in documents)(documents)
