"""What ``vebench.backends.shared_memory`` exports, and how little it takes to import it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vebench.backends import shared_memory

SIMULATORS = {"ale_py", "mujoco", "envpool", "cv2"}
OF_THE_COMMAND_LINE = {"msgspec", "rich", "typer"}


def loaded_by(statement: str) -> set[str]:
    """Return the names of all packages that a fresh interpreter has loaded after the statement."""
    script = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import vebench.backends.shared_memory",
        "from vebench.backends.shared_memory import OverdueError, WorkerError",
        "import vebench.backends.shared_memory.backend",
    ],
)
def test_the_package_and_its_errors_and_backends_load_no_gymnasium(statement: str) -> None:
    loaded = loaded_by(statement)
    assert "vebench" in loaded
    assert not loaded & {"gymnasium", "torch", *SIMULATORS, *OF_THE_COMMAND_LINE}


def test_the_vector_environment_loads_gymnasium_and_no_simulator() -> None:
    loaded = loaded_by("from vebench.backends.shared_memory import SharedMemoryVectorEnv")
    assert {"gymnasium", "numpy"} <= loaded
    assert not loaded & {"torch", *SIMULATORS, *OF_THE_COMMAND_LINE}


def test_what_is_exported_is_what_its_module_defines() -> None:
    everywhere = [name for name in shared_memory.__all__ if name != "StableBaselinesVecEnv"]  # it needs that library
    exported = {name: getattr(shared_memory, name) for name in everywhere}
    assert {name: value.__name__ for name, value in exported.items()} == {name: name for name in exported}
    assert issubclass(exported["OverdueError"], TimeoutError)
    with pytest.raises(AttributeError, match="has no attribute 'Team'"):
        shared_memory.Team  # noqa: B018 - looking it up is the test
