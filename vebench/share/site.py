"""``vebench share site``: a static site of submissions, with an index and a page for each machine.

Pages show manifests, and manifests come from strangers. So Jinja2 escapes all texts, pages run only our own script, and
paths consist of checksums. The same submissions give the same bytes.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from vebench.backends.packages import JINJA2, how_to_install, importable
from vebench.errors import RunFileError, UsageError, one_line
from vebench.plan.spec import SUBMISSION_SUITES
from vebench.plan.verdicts import SAME
from vebench.reports import figures
from vebench.reports.console import note
from vebench.reports.document import Table, TableRow, Text
from vebench.reports.formats import html
from vebench.share.folder import FILES, RUN, CellResult, Submission, read_submission

_MARKER = ".vebench-site"
_OURS = {_MARKER, "index.html", "machines", "submissions"}
_COLUMNS = ("backend", "workers", "speedup", "frames/s", "same work", "note")
_MEANING = (
    "Each row is a backend on a machine, at its best number of workers in the machine's newest submission, with 95 % "
    "intervals. A speedup is relative to a plain loop with one worker in the same run. The last rows, set apart, are "
    "excluded or did other work than a plain loop. Nobody can verify that the named machine gave these rates."
)


def build_site(source: Path, target: Path) -> int:
    """Write the site of the submissions in ``source`` to ``target``, and replace an earlier one. Returns the status."""
    if not importable(JINJA2.module):
        raise UsageError(f"a site needs {JINJA2.name} ({how_to_install([JINJA2])})")
    place = target.resolve()
    if place.exists():
        there = {path.name for path in place.iterdir()} if place.is_dir() else {place.name}
        if there and (_MARKER not in there or there - _OURS):
            other = one_line(min(there - _OURS, default=place.name))
            raise UsageError(f"-o {target}: {other} is not part of a site: name a new folder")
    submissions = _read_all(source)
    # SIGTERM raises KeyboardInterrupt, so that the temporary folder is removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with TemporaryDirectory(prefix=".vebench-site-", dir=place.parent) as scratch:
            draft = Path(scratch, "new")
            _write(draft, submissions)
            if place.exists():
                place.rename(Path(scratch, "old"))
            draft.rename(place)
    except OSError as error:
        raise UsageError(f"-o {target}: {error.strerror}: {error.filename or place}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    note(f"{figures.counted(len(submissions), 'submission')}: {target / 'index.html'}")
    return 0


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
            note(f"left out: {path.name}: has the run of {same.name}")
    if not found:
        raise UsageError(f"{source}: no submission in it")
    return sorted(found.values(), key=lambda one: one.manifest.started, reverse=True)


def _write(draft: Path, newest_first: Sequence[Submission]) -> None:
    """Write the pages and copies of the submissions to a new folder."""
    for name in ("machines", "submissions"):
        (draft / name).mkdir(parents=True)
    (draft / _MARKER).touch()
    for submission in newest_first:
        copy = draft / _folder_of(submission)
        copy.mkdir()
        for name, content in submission.contents.items():
            (copy / name).write_bytes(content)
    environment = html.templates(Path(__file__).with_name("templates"))
    environment.globals.update(files=FILES)
    template = environment.get_template("site.html.jinja")
    machines = figures.by_key((f"machines/{one.machine.id}.html", one) for one in newest_first)
    index = template.render(
        title="Throughput of vector environments, by machine",
        meaning=_MEANING,
        machines={page: _title_of(found[0]) for page, found in machines.items()},
        tables=dict.fromkeys(_across_machines(newest_first), ""),
    )
    (draft / "index.html").write_text(index, encoding="utf-8")
    for page, found in machines.items():
        host, packages = found[0].machine.host, found[0].packages
        facts = {
            "CPUs": f"{host.usable_cpus} usable of {host.cpus_online}, {figures.counted(host.topology.cores, 'core')}",
            "memory": figures.byte_size(host.memory_bytes) if host.memory_bytes else "unknown",
            "system": f"{host.system} {host.kernel}, {host.machine}, Python {host.python}",
            "packages": ", ".join(f"{name} {packages[name]['version']}" for name in sorted(packages)),
        }
        tables = {}
        for one in found:
            rows = [TableRow(each.env, _texts(each), not _is_compared(each)) for each in one.manifest.results]
            title = _task_of(one, one.manifest.started[:10])
            tables[Table(title, _COLUMNS, tuple(rows), corner="task", numbers=False)] = _folder_of(one)
        text = template.render(title=_title_of(found[0]), facts=facts, tables=tables)
        (draft / page).write_text(text, encoding="utf-8")


def _folder_of(submission: Submission) -> str:
    return f"submissions/{submission.manifest.files[RUN][:16]}"


def _title_of(submission: Submission) -> str:
    host = submission.machine.host
    return f"{host.cpu_model}, {figures.counted(host.usable_cpus, 'CPU')}"


def _task_of(submission: Submission, env: str) -> str:
    """Return a task with its suite and division. Only rates with the same text are compared."""
    manifest = submission.manifest
    known = SUBMISSION_SUITES.get(manifest.suite)
    plan = "" if known is not None and known.digest == manifest.plan else f", plan {manifest.plan}"
    return f"{env}: {manifest.suite}{plan}, {manifest.division}"


def _across_machines(newest_first: Sequence[Submission]) -> list[Table]:
    """Return a table for each task: the best result of each backend in each machine's newest submission."""
    newest: dict[tuple[str, str], Submission] = {}
    best: dict[str, dict[tuple[str, str], tuple[Submission, CellResult]]] = defaultdict(dict)
    for submission in newest_first:
        machine = submission.machine.id
        for result in submission.manifest.results:
            task = _task_of(submission, result.env)
            if result.reference_row or newest.setdefault((task, machine), submission) is not submission:
                continue
            known = best[task].get((machine, result.backend))
            if known is None or _worth(result) > _worth(known[1]):
                best[task][machine, result.backend] = submission, result
    tables = []
    for task in sorted(best):
        rows = []
        for submission, result in sorted(best[task].values(), key=lambda pair: _worth(pair[1]), reverse=True):
            manifest = submission.manifest
            texts = (*_texts(result), Text((manifest.started[:10],)), Text((manifest.vebench,)))
            rows.append(TableRow(_title_of(submission), texts, not _is_compared(result)))
        columns = (*_COLUMNS, "measured", "vebench")
        tables.append(Table(task, columns, tuple(rows), corner="machine", numbers=False))
    return tables


def _is_compared(result: CellResult) -> bool:
    return not result.note and result.verdict in SAME and result.frames_per_second is not None


def _worth(result: CellResult) -> tuple[bool, float]:
    return _is_compared(result), result.speedup.median if result.speedup else result.rate


def _texts(result: CellResult) -> tuple[Text, ...]:
    speedup, rate = result.speedup, result.frames_per_second
    return (
        Text((result.backend,)),
        Text((f"{result.workers}",), value=result.workers),
        Text((figures.times(speedup) if speedup else figures.DASH,), value=speedup),
        Text((figures.rate(rate) if rate else figures.DASH,), value=rate),
        Text((result.verdict or figures.DASH,)),
        Text((result.note,)),
    )
