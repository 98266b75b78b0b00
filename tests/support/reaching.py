"""Hosts that are reached as by ssh or srun, without any: programs of these names run lines of a shell here."""

import os
import stat
import sys
from pathlib import Path

import pytest

# ``lost`` is not reached, ``locked`` has another key, ``bare`` no Python, ``old`` has another version of Gymnasium, and
# ``greets`` prints the messages of a login. After one connection, ``gone1-`` is not reached.
# What runs there is no child of this program, and hangs up with it, as with ssh.
SSH = """#!{python} -IS
import os, select, sys
if sys.argv[0].endswith("srun"):
    *options, shell, option, line = sys.argv[1:]
    assert (shell, option) == ("sh", "-c")
    host = dict(option.partition("=")[::2] for option in options)["--nodelist"]
else:
    host, line = sys.argv[sys.argv.index("--") + 1 :]
refusals = {{
    "lost": f"ssh: connect to host {{host}} port 22: No route to host",
    "locked": f"me@{{host}}: Permission denied (publickey).",
}}
if host.startswith("gone"):
    with open("{folder}/" + host + ".seen", "ab+") as file:
        host = host if file.tell() == 0 else "lost"
        file.write(b"x")
if host in refusals:
    print(refusals[host], file=sys.stderr)
    sys.exit(255)
if host == "bare":
    line = "exec no-such-python"
if host == "old":
    os.environ["PYTHONPATH"] = "{old}"
there, say = os.pipe()
hear, back = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(there, 0)
        os.dup2(back, 1)
        os.closerange(3, 100)
        with open("{folder}/" + host + ".pid", "w") as file:
            file.write(str(os.getpid()))
        os.execv("/bin/sh", ["sh", "-c", line])
    os._exit(0)
os.close(there)
os.close(back)
if host.startswith("greets"):
    os.write(1, b"Welcome\\n")
open_ends = {{0: say, hear: 1}}
while hear in open_ends:
    for end in select.select(list(open_ends), [], [])[0]:
        said = os.read(end, 65536)
        if said:
            try:
                while said:
                    said = said[os.write(open_ends[end], said) :]
            except BrokenPipeError:
                pass
            continue
        if end == 0:
            os.close(say)
        del open_ends[end]
"""


def fake_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put such programs first in the path; returns the folder that has a file with the process of each host."""
    found, old = folder / "reached", folder / "old" / "gymnasium-0.1.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: gymnasium\nVersion: 0.1\n")
    found.mkdir()
    programs = folder / "bin"
    programs.mkdir()
    for name in ("ssh", "srun"):
        program = programs / name
        program.write_text(SSH.format(python=sys.executable, old=old.parent, folder=found))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", os.pathsep.join((str(programs), os.environ["PATH"])))
    return found
