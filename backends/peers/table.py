"""Other projects' libraries and backends, read from ``peers.json``: pinned installations, and entries of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vebench.backends.entry import BackendEntry, Library, Option, Scope, whole_number
from vebench.backends.environments.suites import MIB
from vebench.backends.packages import RAY, TORCH, Installation, Package, Step

_KNOWN = {package.name: package for package in (RAY, TORCH)}
# Tasks whose rows depend on mj_step only: contact forces would need mj_rnePostConstraint after it.
_BY_PHYSICS_ALONE = (
    *("HalfCheetah-v5", "Hopper-v5", "InvertedDoublePendulum-v5", "InvertedPendulum-v5"),
    *("Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)
_SCOPES = {"mjbatch": Scope(frozenset({"mujoco"}), lambda task: task.id if task.id in _BY_PHYSICS_ALONE else None)}


def _installation(name: str, title: str, steps: list[dict[str, Any]], **facts: Any) -> Installation:
    made = [Step(tuple(it["requirements"]), tuple(it.get("options", ())), it.get("variables", {})) for it in steps]
    return Installation(name, title, tuple(made), **{**facts, "without": tuple(facts.get("without", ()))})


def _library(installation: Installation, facts: dict[str, Any]) -> Library:
    worker = facts.get("worker_mib")
    return Library(
        facts.get("title", ""),
        tuple(_KNOWN.get(it["name"]) or Package(**it) for it in facts["packages"]),
        installation,
        import_bytes=facts.get("import_mib", 0) * MIB,
        worker_bytes=None if worker is None else worker * MIB,
        spins=facts.get("spins", False),
    )


def _peer(row: dict[str, Any]) -> BackendEntry:
    """Return the entry of a backend. Facts in its row override facts of its library."""
    options = {
        key: Option(whole_number, default, meaning) for key, (default, meaning) in row.get("options", {}).items()
    }
    return BackendEntry(
        row["name"],
        f"vebench.backends.peers.{row['adapter']}",
        row["summary"],
        row.get("steppers", "caller"),
        library=_library(_INSTALLATIONS[row["library"]], {**_DATA["libraries"][row["library"]], **row}),
        scope=_SCOPES.get(row["name"], Scope()),
        options=options,
        asynchronous=row.get("asynchronous", False),
        by_default=False,
    )


_DATA = json.loads(Path(__file__).with_name("peers.json").read_text(encoding="utf-8"))
_INSTALLATIONS = {name: _installation(name, **facts["installation"]) for name, facts in _DATA["libraries"].items()}
PEERS = tuple(map(_peer, _DATA["backends"]))
# Libraries without a backend here, since they only step with their own policy.
COLLECTORS = tuple(_INSTALLATIONS[name] for name, facts in _DATA["libraries"].items() if not facts.get("packages"))
