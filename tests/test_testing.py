"""Our vector environment fulfils the contract, and faults planted in Gymnasium's each break their clause."""

from typing import Any

import faulty_vectors
import pytest
from gymnasium.vector import AutoresetMode

from vebench.backends.shared_memory import SharedMemoryVectorEnv
from vebench.testing import VectorEnvContract

pytest_plugins = "pytester"


class TestOurs(VectorEnvContract):
    def make(self, env_fns: list[Any]) -> SharedMemoryVectorEnv:
        return SharedMemoryVectorEnv(env_fns)


class TestOursWhereTheCallerSteps(VectorEnvContract):
    def make(self, env_fns: list[Any]) -> SharedMemoryVectorEnv:
        return SharedMemoryVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP, caller_steps=True)

    @pytest.mark.parametrize("reuses", [False])  # what is reused is overwritten, as Gymnasium does: test_replacement.py
    def test_the_last_observation_is_returned(self, reuses: bool) -> None:
        super().test_the_last_observation_is_returned(reuses)


FAULTS: dict[str, set[str]] = {
    "Sound(env_fns)": set(),
    "Sound(env_fns, autoreset_mode='Disabled')": set(),
    "Sound(env_fns, autoreset_mode='SameStep')": {"the_last_observation_is_returned[reused_array]"},
    "SyncVectorEnv(env_fns)": {"options_stay_as_they_are", "a_step_after_close_is_an_error"},
    "Sound(env_fns, copy=False)": {"returned_arrays_are_not_overwritten"},
    "SeedsAllAlike(env_fns)": {"environments_are_seeded_in_order"},
    "ResetsAgain(env_fns)": {"the_same_seed_gives_the_same_rows"},
    "ResetsAll(env_fns)": {"a_mask_resets_only_those_in_it"},
    "IsLate(env_fns)": {"episodes_follow_each_other_as_the_mode_says"},
    "CountsEnds(env_fns)": {"rows_are_elements_of_the_spaces"},
    "Terminates(env_fns)": {"terminated_and_truncated_are_told_apart"},
    "HasNoMasks(env_fns)": {"infos_are_arrays_with_masks"},
    "Renames(env_fns)": {"an_exception_arrives"},
    "ForgetsToClose(env_fns)": {"close_closes_each_environment"},
    "ClosesOnce(env_fns)": {"close_may_be_called_twice"},
}


def test_a_fault_breaks_its_clause_and_no_other(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    lines = [f"from {module} import *" for module in (faulty_vectors.__name__, VectorEnvContract.__module__)]
    for number, made in enumerate(FAULTS):
        lines += [f"class Test{number}(VectorEnvContract):", "    def make(self, env_fns):", f"        return {made}"]
    pytester.makepyfile("\n".join(lines))
    _, _, failed = pytester.inline_run("-q", "-k", "not works_after").listoutcomes()
    found: dict[str, set[str]] = {made: set() for made in FAULTS}
    for report in failed:
        _, number, clause = report.nodeid.split("::")
        found[[*FAULTS][int(number.removeprefix("Test"))]].add(clause.removeprefix("test_"))
    assert found == FAULTS
