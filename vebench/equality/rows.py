"""Compares the rows of two sides that have stepped the same case, and finds the first row that differs.

Rows are lists as ``child/equality/subject.py`` sends them. Values are compared by ``child/equality/compare.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from vebench.child.equality.compare import Comparer, Gap, Hidden
from vebench.child.equality.subject import RESET, STEP, array_of, is_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Answer = Mapping[str, Any]  # of a side to a case
    Leaf = Sequence[Any]  # ``[type, shape, data]``

_KINDS = {RESET: "reset", STEP: "step"}


@dataclass(frozen=True)
class FirstDifference:
    """The first row that differs."""

    env: int
    segment: int
    step: int  # actions of the segment before the row
    needs: int  # actions of the segment that both need, so that the row is there
    row: int  # rows of the environment before it
    # ``observations/LEAF``, ``infos/KEY``, ``rewards``, ``terminated`` or ``truncated``; ``resets`` if one side has a
    # row of a reset where the other has a step; ``raised``.
    field: str
    found: tuple[str, str]  # in words
    calls: tuple[int | None, int | None] = (None, None)  # the numbers of the calls that returned the row
    final: bool = False  # whether the row ends an episode


@dataclass
class DiffStats:
    """Counts of compared rows."""

    comparer: Comparer = field(default_factory=lambda: Comparer(may_cast=True))
    rows: int = 0
    ends: int = 0
    truncated: int = 0  # of the ends
    longest: int = 0  # steps of an episode
    infos: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))  # names that each side has
    not_compared: dict[str, str] = field(default_factory=dict)  # infos, and why
    only: str = ""  # of infos, compare this field
    raised: str = ""  # what both raised, so that no more rows could be compared
    kept: str = ""  # a field that shows that both keep state through ``reset(seed=)``
    finals: bool = True  # whether both sides should give the observation of an end

    def anew(self, only: str) -> DiffStats:
        """Return empty stats for other rows of the same two sides, whose infos are compared if they are this field."""
        comparer = Comparer(self.comparer.limits, self.comparer.may_cast)
        same = {"infos": self.infos, "not_compared": self.not_compared, "finals": self.finals}
        return DiffStats(comparer, only=only, **same)  # type: ignore[arg-type] # of different types


def first_difference(one: Answer, other: Answer, stats: DiffStats) -> FirstDifference | None:
    """Compare two answers to a case. Return the row that differs after the fewest actions, None if none does."""
    for names, answer in zip(stats.infos, (one, other), strict=True):
        names.update(f"infos/{leaf[0]}" for rows in answer["rows"] for row in rows for leaf in row[6] or ())
    found = []
    for env, rows in enumerate(zip(one["rows"], other["rows"], strict=True)):
        difference = _of_environment(env, *rows, (one["raised"], other["raised"]), stats)
        if difference is not None:
            found.append(difference)
    if one["raised"] and other["raised"]:
        stats.raised = one["raised"]
    return min(found, key=lambda each: (each.segment, each.step, each.row, each.env), default=None)


def _of_environment(
    env: int, one: Sequence[Any], other: Sequence[Any], raised: tuple[str, str], stats: DiffStats
) -> FirstDifference | None:
    segment = step = age = 0
    what_raised = raised[0] or "nothing", raised[1] or "nothing"
    for number in range(max(len(one), len(other))):
        a, b = (rows[number] if number < len(rows) else None for rows in (one, other))
        known: Sequence[Any] = a or b  # type: ignore[assignment] # one of the two is there
        step = (step if known[0] == segment else 0) + (known[1] == STEP)
        age = 0 if known[1] == RESET else age + 1
        segment = known[0]
        # A reset after an episode is made only if an action comes after it.
        at = env, segment, step, step + (known[1] == RESET and step > 0), number
        if a is None or b is None:
            if any(raised):
                return FirstDifference(*at, "raised", what_raised)
            return FirstDifference(
                *at, "resets", ("no row" if a is None else "a row", "no row" if b is None else "a row")
            )
        if a[:2] != b[:2]:
            return FirstDifference(*at, "resets", (_KINDS[a[1]], _KINDS[b[1]]), (a[7], b[7]))
        stats.rows += 1
        stats.longest = max(stats.longest, age)
        stats.ends += a[4] or a[5]
        stats.truncated += a[5] and not a[4]
        gap = next(stats.comparer.gaps(chain(_fields(a, b, stats.finals), _infos(a, b, stats)), age), None)
        if gap is not None:
            return FirstDifference(*at, gap.field, _words(gap), (a[7], b[7]), a[1] == STEP and (a[4] or a[5]))
    if bool(raised[0]) != bool(raised[1]):
        return FirstDifference(env, segment, step, step, len(one), "raised", what_raised)
    return None


def _words(gap: Gap) -> tuple[str, str]:
    return gap.expected, f"{gap.found}, {gap.count}" if gap.count else gap.found


def _fields(a: Sequence[Any], b: Sequence[Any], finals: bool) -> Iterator[tuple[str, Any, Any]]:
    yield from zip(("rewards", "terminated", "truncated"), a[3:6], b[3:6], strict=True)
    if a[2] is None or b[2] is None:
        if finals:
            yield "observations", a[2], b[2]
        return
    for name, one, other in _in_pairs("observations", a[2], b[2]):
        if one != other:
            yield name, _value(one), _value(other)


def _in_pairs(kind: str, *leaves: Sequence[Any]) -> Iterator[tuple[str, Leaf | None, Leaf | None]]:
    ours, theirs = ({f"{kind}/{name}".rstrip("/"): leaf for name, *leaf in each} for each in leaves)
    for name in sorted({*ours, *theirs}):
        yield name, ours.get(name), theirs.get(name)


def _infos(a: Sequence[Any], b: Sequence[Any], stats: DiffStats) -> Iterator[tuple[str, Any, Any]]:
    """Yield the infos that can be compared.

    A key missing on one side counts as a difference only if that side provides it in other rows.
    """
    if a[6] is None or b[6] is None:
        return
    for name, *pair in _in_pairs("infos", a[6], b[6]):
        if name in stats.not_compared or stats.only not in ("", name):
            continue
        given = [leaf for leaf in pair if leaf is not None]
        kinds = {leaf[0] for leaf in given}
        if "" in kinds:
            stats.not_compared[name] = "neither numbers nor text"
            continue
        one, other = (None if leaf is None else _value(leaf[:3]) for leaf in pair)
        if len(kinds - {"object"}) > 1 and any(isinstance(value, Hidden) for value in (one, other)):
            stats.not_compared[name] = "arrays of two types, and long"
        elif len(given) > 1 or (given[0][3] and name in stats.infos[0] & stats.infos[1]):
            yield name, one, other


def _value(leaf: Leaf | None) -> Any:
    if leaf is None:
        return None
    if leaf[0] == "object" or is_digest(leaf):
        return Hidden(leaf[0], leaf[2])
    return array_of(leaf)


def remembers(used: Answer, alone: Answer, stats: DiffStats) -> bool:
    """Return whether the second segment of a case gives other rows than the same segment alone."""
    rows = [[(0, *row[1:]) for row in each if row[0]] for each in used["rows"]]
    return first_difference({**used, "rows": rows}, alone, stats) is not None


def before_an_end(answer: Answer) -> int:
    """Return after how many steps of the first segment no environment has ended."""
    flags = [[row[4] or row[5] for row in rows if row[:2] == [0, STEP]] for rows in answer["rows"]]
    return min([*ended, True].index(True) for ended in flags)


def unsteady(one: Answer, again: Answer) -> set[str]:
    """Return the names of infos that differ between two answers of one side, such as how long an episode took."""
    found: set[str] = set()
    for a, b in zip(chain(*one["rows"]), chain(*again["rows"]), strict=False):
        stats = DiffStats()
        for values in _infos(a, b, stats):
            found.update(gap.field for gap in stats.comparer.gaps([values]))
    return found
