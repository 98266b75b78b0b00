"""Compares one backend with the reference, on the exact variant of a task, in which nothing is left to chance.

Loaded by the child when it is asked for a proof: numpy and Python 3.10.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vebench.child.proof.faults import Case, name_fault
from vebench.child.proof.reference import MalformedError, Reference, action_table, compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.interface import Setup, VectorBackend
    from vebench.child.proof.reference import Account

NOT_REPEATABLE = "the environment answers otherwise each time, with the same seed and the same actions"


def prove(request: dict[str, Any], setup: Setup, tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Compare the request's backend with the reference, as its ``comparison`` says; tell the verdict."""
    steps: int = request["comparison"]["steps"]
    module, _, name = request["target"].partition(":")
    factory = getattr(importlib.import_module(module), name)

    def build() -> VectorBackend:
        backend: VectorBackend = factory(setup, **request["options"])
        return backend

    backend = build()
    engines = [vars(engine) for engine in backend.info.engines]
    try:
        if backend.info.chance is not None:
            tell("proof", {"verdict": "unverified", "reason": backend.info.chance, "engines": engines})
            return
        info = backend.info
        same_step = info.autoreset == "same_step"
        references = [Reference(setup.task, env_id, setup.seed, same_step=same_step) for env_id in range(info.num_envs)]
        tape = action_table(references[0], steps, len(references), setup.seed)
        try:
            account = compare(backend, references, tape, steps, setup.seed)
        except MalformedError as error:
            tell("proof", {"verdict": "different", "fault": str(error), "engines": engines})
            return
    finally:
        backend.close()
    answer: dict[str, Any] = {"verdict": verdict(account), "rows": account.rows, "ends": account.ends}
    answer |= {"allowed": account.allowed, "engines": engines}
    answer |= {"simulated": account.simulated, "claimed": account.claimed, "frames_from": account.frames_from}
    if account.parting is not None:
        case = Case(setup.task, account.parting, build, tape, len(references), setup.seed, same_step)
        if not case.repeatable():
            tell("proof", {"verdict": "unverified", "reason": NOT_REPEATABLE, "engines": engines})
            return
        answer["parting"] = vars(account.parting)
        answer["pictures"] = _pictures(request, account)
        try:
            answer["fault"] = name_fault(case)
        except Exception as error:  # noqa: BLE001 - it is different, whatever it does when it is tried again
            answer["fault"] = f"tried again, it failed: {type(error).__name__}: {error}"
    tell("proof", answer)


def _pictures(request: dict[str, Any], account: Account) -> tuple[str, ...]:
    """Write the observations that differ, if that is asked for; return the files."""
    folder, parting = request["comparison"]["frames"], account.parting
    if folder is None or parting is None or parting.field != "observations" or account.rows_apart is None:
        return ()
    from vebench.child.proof import pictures  # noqa: PLC0415 - on use only

    options = "".join(f" {key}={value}" for key, value in request["options"].items())
    backend = request["backend"] + options
    name = f"{request['task']['id']} {backend} env{parting.env_id} step{parting.step}"
    expected, found = account.rows_apart
    return pictures.save(folder, name, expected.observation, found.observation)


def verdict(account: Account) -> str:
    """Return the one word for what a comparison saw."""
    if account.parting is not None:
        return "different"
    if account.allowed:
        return "equivalent"
    return "equal" if account.rounded else "identical"
