"""What the packages of our own vector environments export, and how little it takes to import them."""

import subprocess
import sys

import pytest

from vebench.backends import shared_memory

SIMULATORS = {"ale_py", "mujoco", "envpool", "cv2"}
OF_THE_COMMAND_LINE = {"msgspec", "rich", "typer"}


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("from vebench.backends.shared_memory import OverdueError, WorkerError", set()),
        ("import vebench.backends.shared_memory.backend", set()),
        ("from vebench.backends.shared_memory import SharedMemoryVectorEnv", {"gymnasium"}),
        ("import vebench.backends.fast", set()),
        ("from vebench.backends.fast import make_vec", {"gymnasium"}),
    ],
)
def test_only_vector_environments_load_gymnasium_and_none_loads_a_simulator(statement: str, needed: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "vebench" in loaded
    assert loaded & {"gymnasium", "torch", *SIMULATORS, *OF_THE_COMMAND_LINE} == needed


def test_what_is_exported_is_what_its_module_defines() -> None:
    everywhere = [name for name in shared_memory.__all__ if name != "StableBaselinesVecEnv"]  # it needs that library
    exported = {name: getattr(shared_memory, name) for name in everywhere}
    assert {name: value.__name__ for name, value in exported.items()} == {name: name for name in exported}
    assert issubclass(exported["OverdueError"], TimeoutError)
    with pytest.raises(AttributeError, match="has no attribute 'Team'"):
        shared_memory.Team  # noqa: B018 - looking it up is the test
