"""What the packages of our own vector environments export, and how little it takes to import and to use them."""

import doctest
import subprocess
import sys
from functools import cache
from types import ModuleType

import pytest

from vebench.backends.fast import vector_env as fast
from vebench.backends.shared_memory import vector_env


@cache
def loaded_by(statement: str) -> tuple[set[str], set[str]]:
    """Return the packages of others that a new process has loaded after a statement, and which parts of vebench."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    modules = [name.split(".") for name in done.stdout.splitlines()[-1].split()]
    others = {name for name, *_ in modules} - set(sys.stdlib_module_names) - {"vebench", "__mp_main__"}
    return others, {part for name, *parts in modules if name == "vebench" for part in parts[:1]}


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("import vebench.backends.fast, vebench.backends.shared_memory", ""),
        ("import vebench.backends.shared_memory.backend", "import numpy"),
        ("from vebench.backends.shared_memory import SharedMemoryVectorEnv", "import gymnasium"),
        ("from vebench.backends.fast import make_vec\nmake_vec('CartPole-v1', 8).close()", "import gymnasium"),
        (
            "from vebench.backends.fast import make_vec\nmake_vec('HalfCheetah-v5', 8).close()",
            "import gymnasium\ngymnasium.make('HalfCheetah-v5')",
        ),
    ],
)
def test_nothing_is_loaded_but_numpy_gymnasium_and_the_simulator(statement: str, needed: str) -> None:
    others, parts = loaded_by(statement)
    assert others <= loaded_by(needed)[0]
    assert parts <= {"backends", "errors", "machine"}


@pytest.mark.parametrize("module", [vector_env, fast])
def test_the_examples_in_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
