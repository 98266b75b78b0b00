"""Compares one backend with the reference on the exact variant of a task, which has no randomness."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.child.answers import Proof
from vebench.child.proof.compare import MalformedError, action_table, compare
from vebench.child.proof.faults import Case, name_fault
from vebench.child.proof.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.interface import Factory, VectorBackend
    from vebench.child.answers import Mismatch
    from vebench.child.proof.compare import Compared
    from vebench.child.request import Proving, Request

NOT_REPEATABLE = "the environment gives other results each time, with the same seed and the same actions"


def prove(request: Request, proving: Proving, factory: Factory) -> Proof:
    """Compare the request's backend with the reference, and return the result."""

    def build() -> VectorBackend:
        return factory(request.setup, **request.options)

    backend = build()
    found = _compared(request, proving, backend, build)
    return replace(found, engines=backend.info.engines, own_classes=backend.info.own_classes)


def _compared(request: Request, proving: Proving, backend: VectorBackend, build: Callable[[], VectorBackend]) -> Proof:
    setup, info = request.setup, backend.info
    same_step = info.autoreset == "same_step"
    try:
        if info.chance is not None:
            return Proof("unverified", reason=info.chance)
        references = [Reference(setup.task, env_id, setup.seed, same_step=same_step) for env_id in range(info.num_envs)]
        tape = action_table(references[0], proving.steps, len(references), setup.seed)
        compared = compare(backend, references, tape, proving.steps, setup.seed)
    except MalformedError as error:
        return Proof("different", fault=str(error))
    finally:
        backend.close()
    proof = compared.proof
    if proof.mismatch is None:
        return proof
    case = Case(setup.task, proof.mismatch, build, tape, len(references), setup.seed, same_step)
    if not case.repeatable():
        return Proof("unverified", reason=NOT_REPEATABLE)
    pictures = _pictures(request, proving, proof.mismatch, compared)
    return replace(proof, pictures=pictures, fault=_fault(case))


def _fault(case: Case) -> str:
    try:
        return name_fault(case)
    except Exception as error:  # noqa: BLE001 - it is different, even if it fails when it is run again
        return f"run again, it failed: {type(error).__name__}: {error}"


def _pictures(request: Request, proving: Proving, mismatch: Mismatch, compared: Compared) -> tuple[str, ...]:
    """Write the observations that differ, if the request asks for it. Returns the paths of the files."""
    if proving.frames is None or mismatch.field != "observations" or compared.rows is None:
        return ()
    from vebench.child.proof import pictures  # noqa: PLC0415 - on use only

    options = "".join(f" {key}={value}" for key, value in request.options.items())
    name = f"{request.setup.task.id} {request.backend}{options} env{mismatch.env_id} step{mismatch.step}"
    expected, found = compared.rows
    return pictures.save(proving.frames, name, expected.observation, found.observation)
