"""A study of your own, which ``vebench study pace:STUDY`` measures and answers."""

from collections.abc import Sequence
from dataclasses import replace

from vebench.reports.conclusion import Conclusion
from vebench.reports.document import Table, TableRow
from vebench.studies.pairs import LEGEND, lacking, pairs
from vebench.studies.study import PLAN, Measured, Part, Study


def conclude(runs: Sequence[Measured]) -> Conclusion:
    """Return the answer, given the cells of each run that was measured, as vebench report shows them."""
    found = pairs(
        (run, one, base)
        for run in runs
        for one in run.cells
        for base in run.cells
        if (one.backend, base.backend) == ("gym-async", "gym-sync") and one.key.size == base.key.size
    )
    decided = [pair for pair in found if pair.decided]
    answers = [f"With {pair.where}, gym-async is {pair.words}." for pair in decided]
    return Conclusion(
        headline=" ".join(answers) or "Not decided: neither was faster beyond doubt.",
        decided=bool(decided),
        tables=(Table("rate over gym-sync's", "size", ("ratio",), tuple(TableRow(p.where, (p.text,)) for p in found)),),
        undecided=(*(f"{pair.where}: {pair.words}" for pair in found if pair not in decided), *lacking(found)),
        legend=LEGEND,
    )


STUDY = Study(
    name="pace",
    question="Is gym-async faster than gym-sync?",
    parts=(Part("pair", replace(PLAN, envs=("CartPole",), envs_per_worker=(1, 8)), ("gym-async", "gym-sync")),),
    conclude=conclude,
)
