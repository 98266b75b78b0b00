"""Compares one backend with the reference, on the exact variant of a task, in which nothing is left to chance.

Loaded by the child when it is asked for a proof: numpy and Python 3.10.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vebench.engine.faults import Case, name_fault
from vebench.engine.witness import MalformedError, Reference, action_table, compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.interface import Setup, VectorBackend
    from vebench.engine.witness import Account


def prove(request: dict[str, Any], setup: Setup, tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Compare the request's backend with the reference for ``steps`` steps of each environment; tell the verdict."""
    module, _, name = request["target"].partition(":")
    factory = getattr(importlib.import_module(module), name)

    def build() -> VectorBackend:
        backend: VectorBackend = factory(setup, **request["options"])
        return backend

    backend = build()
    try:
        if backend.info.chance is not None:
            tell("proof", {"verdict": "unverified", "reason": backend.info.chance})
            return
        references = [Reference(setup.task, env_id, setup.seed) for env_id in range(backend.info.num_envs)]
        tape = action_table(references[0], request["steps"], len(references), setup.seed)
        try:
            account = compare(backend, references, tape, request["steps"], setup.seed)
        except MalformedError as error:
            tell("proof", {"verdict": "different", "fault": str(error)})
            return
    finally:
        backend.close()
    answer: dict[str, Any] = {"verdict": verdict(account), "rows": account.rows, "ends": account.ends}
    answer["allowed"] = account.allowed
    if account.parting is not None:
        case = Case(setup.task, account.parting, build, tape, len(references), setup.seed)
        answer["parting"] = vars(account.parting)
        try:
            answer["fault"] = name_fault(case)
        except Exception as error:  # noqa: BLE001 - it is different, whatever it does when it is tried again
            answer["fault"] = f"tried again, it failed: {type(error).__name__}: {error}"
    tell("proof", answer)


def verdict(account: Account) -> str:
    """Return the one word for what a comparison saw."""
    if account.parting is not None:
        return "different"
    if account.allowed:
        return "equivalent"
    return "equal" if account.rounded else "identical"
