"""The options that several commands share, each with what its help says. Importing this costs no more than typer."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_WORKERS = "1..4"

Envs = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="ENV", help="Pong, HalfCheetah, CartPole-v1, MODULE:ID ... Comma or repeat."),
]
Workers = Annotated[
    list[str] | None,
    typer.Option(
        "--workers",
        "-w",
        metavar="COUNTS",
        help="8, or 1..256 (doubles), 1..16:+5 (adds), 1..81:*3 (multiplies). "
        f"Comma or repeat. Default: {DEFAULT_WORKERS}.",
    ),
]
Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="A name from vebench list, NAME[KEY=VALUE,...] or MODULE:CLASS. Comma or repeat. Default: all.",
    ),
]
EnvsPerWorker = Annotated[int, typer.Option(metavar="N", help="Environments stepped at a time for each worker.")]
Duration = Annotated[float, typer.Option(metavar="SECONDS", help="Length of one window.")]
Rounds = Annotated[int, typer.Option(metavar="N", help="Windows of each cell.")]
Warmup = Annotated[float, typer.Option(metavar="SECONDS", help="What runs before the first window, at least.")]
Repeats = Annotated[int, typer.Option(metavar="N", help="Passes over all cells, each in an order of its own.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Of environments, actions and the order of cells.")]
Pin = Annotated[
    str, typer.Option(metavar="CPUS", help="CPUs of a cell: compact, scatter, none, or a list such as 0-3,8.")
]
Membind = Annotated[
    str, typer.Option(metavar="HOW", help="Memory of a cell: local, bind (to its CPUs' nodes) or preferred.")
]
Replicas = Annotated[
    str,
    typer.Option(metavar="N", help="Pools of a cell, each in a process and on CPUs of its own: a number, or node."),
]
Smt = Annotated[
    str,
    typer.Option(metavar="WHEN", help="A core's second thread: last (after all cores), off, or close (at once)."),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="After which a cell is ended.")]
Tolerance = Annotated[str, typer.Option(metavar="SHARE", help="By how much a cell may be slower, such as 5% or 0.05.")]
Inconclusive = Annotated[
    str | None,
    typer.Option("--inconclusive", metavar="WHAT", help="pass or fail where nobody can tell. Default: exit status 3."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
