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


def runs(path: str) -> bool:
    try:
        return subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode == 0
    except PermissionError:  # it is another user's, such as root's
        return False


def main(folder: str) -> None:
    """Make the environment in ``folder``, of the first Python 3.10 on the path or that pyenv keeps."""
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    candidates = [shutil.which(NAME), *map(str, Path(pyenv, "versions").glob(f"3.10*/bin/{NAME}"))]
    python = next((path for path in candidates if path is not None and runs(path)), None)
    if python is None:
        sys.stderr.write(f"no {NAME} here: what the measuring child loads is not tried in it\n")
        return
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "numpy"], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
