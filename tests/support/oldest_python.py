"""Makes a virtual environment of Python 3.10 that holds numpy alone: the oldest in which a cell may run.

Run as a script with the folder to make it in. Where no Python 3.10 is found it makes nothing, and the tests that need
it are skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAME = "python3.10"


def found() -> str | None:
    """Return a Python 3.10 that runs: on the path, or among those that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(NAME), *_kept(pyenv)]
    return next((path for path in candidates if path is not None and _runs(path)), None)


def _kept(pyenv: Path) -> list[str]:
    try:
        return [str(path) for path in sorted(pyenv.glob(f"3.10*/bin/{NAME}"))]
    except PermissionError:  # those of another user, such as root
        return []


def _runs(path: str) -> bool:
    try:
        return subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode == 0
    except PermissionError:
        return False


def main(folder: str) -> None:
    """Make the environment in ``folder``, if there is a Python for it."""
    python = found()
    if python is None:
        sys.stderr.write(f"no {NAME} here: what the measuring child loads is not tried in it\n")
        return
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "numpy"], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
