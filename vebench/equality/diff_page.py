"""Two implementations compared: what they have in common, and where they part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vebench.equality.example import made, place
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import AnswerText, DataPage, Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.equality.differences import Case, Parting, Tally

_MEANINGS = {
    "identical": "the same bytes of observations, the same rewards, flags and infos, in all rows that were compared",
    "equal": "the same after a cast of numbers, which the table names",
    "within limits": "no further apart than --within allows",
    "same distribution": "starts, steps, returns and lengths of episodes could not be told apart, at an error of 5 %",
    "different": "other work",
    "unverified": "it could not be told",
}
_AGREE = "identical", "equal", "within limits"
_RULE_OF_THREE = 3.0  # over n: the 95 % bound of a share of which none was seen in n


@dataclass(frozen=True)
class Verdict:
    """What two are to each other: a ``word``, what it rests on, and where they part if they do."""

    word: str
    tally: Tally
    parting: Parting | None = None
    case: Case = ()
    why: str = ""
    script: str = ""


@dataclass(frozen=True)
class PairPage(DataPage):
    """The verdict on two texts; ``abouts`` is what each has said of itself (``child/equality/subject.py``)."""

    names: tuple[str, str]
    abouts: tuple[dict[str, Any], dict[str, Any]]
    verdict: Verdict
    seed: int
    policy: str | None = None
    kind = "verify"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the verdict, what was compared, and the script that shows where they part."""
        verdict = self.verdict
        tally = verdict.tally
        code = tuple(verdict.script.splitlines())
        sentence = "Run the smallest example with PYTHONPATH=. python .vebench/example.py"
        answers = (AnswerText("", (sentence,), code),) if code else ()
        facts = tuple((name, one_line(text)) for name, text in self._rests_on())
        legend = [f"{verdict.word}: {_MEANINGS[verdict.word]}."]
        if verdict.why and verdict.word == "different":
            legend.clear()  # it is said why
        if verdict.word in _AGREE and not tally.ends:
            legend.append("No episode ended, so that resets after an end were not compared: more --steps.")
        elif verdict.word in _AGREE and not tally.skipped:
            bound = min(1.0, _RULE_OF_THREE / tally.ends)
            legend.append(
                f"At most {bound:.1%} of episodes under such actions differ (95 %, from {tally.ends:,} ends)."
            )
        title = "; ".join([f"{self.names[0]} and {self.names[1]}: {verdict.word}", *self._not_compared()])
        return (Document(title=one_line(title), facts=facts, tables=(), legend=tuple(legend), answers=answers),)

    def _not_compared(self) -> list[str]:
        """Return in words what a verdict on rows does not cover."""
        tally, found = self.verdict.tally, list[str]()
        if self.verdict.word not in _AGREE:
            return found
        if not tally.truncated:
            found.append("no truncation was seen" if tally.ends else "no end was seen")
        if tally.kept:
            found.append("each reset(seed=) in fresh copies")
        return found + [f"only {name} has {names}" for name, names in self._only().items() if names]

    def _only(self) -> dict[str, str]:
        """Return the names of infos that only one side has."""
        first, second = self.verdict.tally.infos
        return {"A": ", ".join(sorted(first - second)), "B": ", ".join(sorted(second - first))}

    def _rests_on(self) -> Iterator[tuple[str, str]]:
        verdict, tally = self.verdict, self.verdict.tally
        parting = verdict.parting
        if parting is not None:
            actions = made(verdict.case, parting)
            count = figures.counted(len(verdict.case[0].actions), "environment")
            yield "part in", f"{parting.field} {place(verdict.case, parting)}, environment {parting.env}"
            yield "A has", parting.found[0]
            yield "B has", parting.found[1]
            yield "example", f"{count}, {figures.counted(actions, 'action')}, seed {verdict.case[0].seed}"
        if verdict.why:
            yield "why", verdict.why
        if tally.rows:
            yield "compared", f"{tally.rows:,} rows, {tally.ends:,} ends, {tally.truncated:,} of them truncated"
        for words, times in sorted(tally.casts.items()):
            yield "equal by", f"{words}: {times:,} times"
        for words, furthest in sorted(tally.furthest.items()):
            yield "furthest", f"{words}: {furthest:.3g} apart"
        if tally.skipped:
            yield "left out", f"{tally.skipped:,} arrays after the steps that --within names"
        if tally.kept:
            yield "state", f"both keep some through reset(seed=): {tally.kept} after it depend on the steps before"
        yield from self._sides()
        if self.policy:
            yield "actions", f"--policy {self.policy}"
        yield "drawn from", f"--seed {self.seed}"

    def _sides(self) -> Iterator[tuple[str, str]]:
        for name, about in zip("AB", self.abouts, strict=True):
            kind = "an environment"
            if about["vector"]:
                kind = f"a vector environment, autoreset {about['mode'].replace('_', ' ')}"
            yield name, kind
        a, b = (about["spec"] for about in self.abouts)
        for name in sorted(a.keys() & b.keys()):
            if a[name] != b[name]:
                yield "env.spec", f"{name}: {a[name] or 'none'} and {b[name] or 'none'}"
        tally = self.verdict.tally
        first, second = tally.infos
        for name in sorted(tally.not_compared.keys() & first & second):
            yield "not compared", f"{name}: {tally.not_compared[name]}"

    @property
    def data(self) -> dict[str, object]:
        """The verdict as an object."""
        verdict, tally = self.verdict, self.verdict.tally
        parting = verdict.parting
        return {
            "a": self.names[0],
            "b": self.names[1],
            "verdict": verdict.word,
            "why": verdict.why or None,
            "rows": tally.rows,
            "ends": tally.ends,
            "truncated": tally.truncated,
            "equal_by": dict(tally.casts),
            "furthest": dict(tally.furthest),
            "left_out": tally.skipped,
            "not_compared": dict(tally.not_compared),
            "state": tally.kept or None,
            "beside": self._not_compared(),
            "specs": [about["spec"] for about in self.abouts],
            "field": None if parting is None else parting.field,
            "found": None if parting is None else list(parting.found),
            "environments": len(verdict.case[0].actions) if verdict.case else None,
            "actions": None if parting is None else made(verdict.case, parting),
            "seed": self.seed,
            "policy": self.policy,
            "script": verdict.script or None,
        }
