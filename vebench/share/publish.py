"""``vebench share site`` and ``share cite``: a static site of submissions, and how to quote a run.

The site has an index and a page for each machine. They show manifests, and manifests come from strangers. So Jinja2
escapes all texts, pages run only our own script, and paths consist of checksums. The same submissions give the same
bytes.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from vebench.analysis.answer import Reason, answer_for
from vebench.analysis.cell import CellSummary, in_report_order
from vebench.analysis.rules import unusable
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.backends.packages import JINJA2, how_to_install, importable
from vebench.commands.session import known
from vebench.errors import RunFileError, UsageError, one_line
from vebench.plan.spec import SUBMISSION_SUITES
from vebench.plan.verdicts import SAME
from vebench.process_guard import terminable
from vebench.reports import figures
from vebench.reports.answer import rate_of
from vebench.reports.console import Outlet, note
from vebench.reports.document import AnswerText, Document, SimplePage, Table, TableRow, Text
from vebench.reports.formats import html
from vebench.reports.formats.data import in_latex
from vebench.results import store
from vebench.results.records import RunRecord, with_current_verdicts
from vebench.share.submissions import FILES, CellResult, Submission, read_submission

_MARKER = ".vebench-site"
_OURS = {_MARKER, "index.html", "machines", "submissions"}
_COLUMNS = ("backend", "workers", "speedup", "frames/s", "same work", "note")
_MEANING = (
    "Each row is a backend on a machine, at its best number of workers in the machine's newest submission, with 95 % "
    "intervals. A speedup is relative to a plain loop with one worker in the same run. The last rows, set apart, are "
    "excluded, did different work from a plain loop, or could not be compared with one. Nobody can verify that the "
    "named machine gave these rates."
)


def build_site(source: Path, target: Path) -> None:
    """Write the site of the submissions in ``source`` to ``target``, and replace an earlier one."""
    if not importable(JINJA2.module):
        raise UsageError(f"a site needs {JINJA2.name} ({how_to_install([JINJA2])})")
    place = target.resolve()
    if place.exists():
        there = {path.name for path in place.iterdir()} if place.is_dir() else {place.name}
        if there and (_MARKER not in there or there - _OURS):
            other = one_line(min(there - _OURS, default=place.name))
            raise UsageError(f"-o {target}: {other} is not part of a site: name a new folder")
    submissions = _read_all(source)
    try:
        with terminable(), TemporaryDirectory(prefix=".vebench-site-", dir=place.parent) as scratch:
            draft = Path(scratch, "new")
            _write(draft, submissions)
            if place.exists():
                place.rename(Path(scratch, "old"))
            draft.rename(place)
    except OSError as error:
        raise UsageError(f"-o {target}: {error.strerror}: {error.filename or place}") from None
    note(f"{figures.counted(len(submissions), 'submission')}: {target / 'index.html'}")


def _read_all(source: Path) -> list[Submission]:
    """Return the submissions in a folder, the newest first. A note on standard error names each folder left out."""
    if not source.is_dir():
        raise UsageError(f"{source}: name a folder of submissions")
    found: dict[str, Submission] = {}
    for path in sorted(source.iterdir()):
        if path.name.startswith(".") or not path.is_dir():  # such as .git and README.md
            continue
        try:
            submission = read_submission(path)
        except RunFileError as error:
            note(f"left out: {path.name}: {error}")
            continue
        same = found.setdefault(_folder_of(submission), submission)
        if same is not submission:
            note(f"left out: {path.name}: contains the same run as {same.name}")
    if not found:
        raise UsageError(f"{source}: no submission in it")
    return sorted(found.values(), key=lambda one: one.manifest.started, reverse=True)


def _write(draft: Path, newest_first: Sequence[Submission]) -> None:
    """Write the pages and copies of the submissions to a new folder."""
    (draft / "machines").mkdir(parents=True)
    (draft / _MARKER).touch()
    for submission in newest_first:
        copy = draft / _folder_of(submission)
        copy.mkdir(parents=True)
        for name, content in submission.contents.items():
            (copy / name).write_bytes(content)
    environment = html.templates(Path(__file__).with_name("templates"))
    environment.globals.update(files=FILES)
    template = environment.get_template("site.html.jinja")
    machines = figures.by_key((f"machines/{one.manifest.machine}.html", one) for one in newest_first)
    index = template.render(
        title="Throughput of vector environments, by machine",
        meaning=_MEANING,
        machines={page: _title_of(found[0]) for page, found in machines.items()},
        tables=dict.fromkeys(_across_machines(newest_first), ""),
    )
    (draft / "index.html").write_text(index, encoding="utf-8")
    for page, found in machines.items():
        host, packages = found[0].manifest.host, found[0].manifest.packages
        facts = {
            "CPUs": f"{host.usable_cpus} usable of {host.cpus_online}, {figures.counted(host.topology.cores, 'core')}",
            "memory": figures.byte_size(host.memory_bytes) if host.memory_bytes else "unknown",
            "system": f"{host.system} {host.kernel}, {host.machine}, Python {host.python}",
            "packages": ", ".join(f"{name} {packages[name]}" for name in sorted(packages)),
        }
        tables = {}
        for one in found:
            rows = tuple(_row(each.env, each) for each in one.manifest.results)
            title = _task_of(one, one.manifest.started[:10])
            tables[Table(title, _COLUMNS, rows, corner="task", numbers=False)] = _folder_of(one)
        text = template.render(title=_title_of(found[0]), facts=facts, tables=tables)
        (draft / page).write_text(text, encoding="utf-8")


def _folder_of(submission: Submission) -> str:
    return f"submissions/{submission.manifest.sha256[:16]}"


def _title_of(submission: Submission) -> str:
    host = submission.manifest.host
    return f"{host.cpu_model}, {figures.counted(host.usable_cpus, 'CPU')}"


def _task_of(submission: Submission, env: str) -> str:
    """Return a task with its suite and division. Only tasks with the same text share a table."""
    manifest = submission.manifest
    suite = SUBMISSION_SUITES.get(manifest.suite)
    plan = "" if suite is not None and suite.digest == manifest.plan else f", plan {manifest.plan}"
    return f"{env}: {manifest.suite}{plan}, {manifest.division}"


def _across_machines(newest_first: Sequence[Submission]) -> Iterator[Table]:
    """Yield a table for each task: the best result of each backend in each machine's newest submission."""
    found: dict[str, list[tuple[CellResult, Submission]]] = defaultdict(list)
    for one in newest_first:
        for result in one.manifest.results:
            if not result.reference_row:
                found[_task_of(one, result.env)].append((result, one))
    for task, pairs in sorted(found.items()):
        newest = {one.manifest.machine: one for _, one in reversed(pairs)}
        best: dict[tuple[str, str], TableRow] = {}  # the fastest first
        for result, one in sorted(pairs, key=lambda pair: _worth(pair[0]), reverse=True):
            machine, measured = one.manifest.machine, (one.manifest.started[:10], one.manifest.vebench)
            if newest[machine] is one:
                best.setdefault((machine, result.backend), _row(_title_of(one), result, *measured))
        yield Table(task, (*_COLUMNS, "measured", "vebench"), tuple(best.values()), corner="machine", numbers=False)


def _is_compared(result: CellResult) -> bool:
    return not result.note and result.verdict in SAME and result.frames_per_second is not None


def _worth(result: CellResult) -> tuple[bool, float]:
    return _is_compared(result), result.speedup.median if result.speedup else result.rate


def _row(label: str, result: CellResult, *more: str) -> TableRow:
    speedup, rate = result.speedup, result.frames_per_second
    texts = (
        Text((result.backend,)),
        Text((f"{result.workers}",), value=result.workers),
        Text((figures.with_spread(speedup, "x") if speedup else figures.DASH,), value=speedup),
        Text((figures.with_spread(rate) if rate else figures.DASH,), value=rate),
        *(Text((text,)) for text in (result.verdict or figures.DASH, result.note, *more)),
    )
    return TableRow(label, texts, reference_row=not _is_compared(result))


def cite(file: Path, outlet: Outlet) -> None:
    """Show how to quote the fastest backend of each task. Raises UsageError if no task has one."""
    run = with_current_verdicts(store.read(file), known())
    cells, head = summarise(run, str(file)), run.header
    usable, quoted = unusable(cells) is None, []
    for env in dict.fromkeys(cell.env for cell in in_report_order(cells, head.spec)):
        found = answer_for([cell for cell in cells if cell.env == env], head.spec, usable=usable)
        if found.best is not None and found.reason in (None, Reason.ALONE):
            quoted.append(found.best)
    if not quoted:
        raise UsageError(f"{one_line(str(file))}: no rate to quote: see vebench report {shlex.quote(str(file))}")
    outlet.publish(cite_page(head, quoted))


def cite_page(head: RunRecord, quoted: Sequence[CellSummary]) -> SimplePage:
    """Return a page with a sentence for each of these cells, one on the circumstances, and an entry for BibTeX."""
    host, spec, version = head.host, head.spec, head.packages.get("vebench", "")
    sentences = []
    for cell in quoted:
        compared = cell.work.proof and cell.work.proof.rows
        work = "the same work as a plain loop" if compared else "work not compared here"
        what = f"{figures.without_folders(())(cell.label)} with {cell.key.size} steps {rate_of(cell)}"
        sentences.append(f"{short_name(cell.env)}: {what}, {work} ({cell.verdict}).")
    passes = f"{spec.passes} passes of {spec.windows} windows of {spec.duration:g} s"
    plan = f"suite {spec.suite}" if spec.suite else passes
    packages = ", ".join(f"{name} {version}" for name, version in head.packages.items() if name != "vebench")
    circumstances = (
        f"Measured with vebench {version} ({plan}) on {figures.counted(host.usable_cpus, 'CPU')} of {host.cpu_model}, "
        f"{host.system}, Python {host.python}, {packages}, {head.started[:10]}, run {head.digest}; rates with 95 % "
        "confidence intervals."
    )
    sentences.append(one_line(circumstances))
    title = f"Throughput of vector environments, measured with vebench {version}"
    fields = {"title": title, "year": head.started[:4], "note": " ".join(sentences)}
    lines = [f"  {name} = {{{in_latex(text)}}}," for name, text in fields.items()]
    entry = (f"@misc{{vebench-{head.digest},", *lines, "}")
    words = AnswerText("", tuple(sentences), entry)
    return SimplePage("cite", (Document("To quote this run", (), (), answers=(words,)),), "\n".join((*entry, "")))
