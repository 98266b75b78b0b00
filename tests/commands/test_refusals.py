"""Bad input, whichever command it is given to: one line on standard error, status 2, and nothing is started or left."""

import shlex
from pathlib import Path

import pytest
from support.commands import Command
from support.fakes import FakeStart

from vebench.commands.session import World

# A command line, and words of the refusal. A lone surrogate is a byte that is not UTF-8.
REFUSED = (
    ("run", "--env", "Pong"),
    ("run -e Pong,,Ant", "--env", "missing"),
    ("run -e CartPole -b faulty:Sound[lenght=3]", "lenght", "length"),
    ("run -e CartPole -b 'faulty:Sound[length=\udcff]'", "--backend", "UTF-8"),
    ("run -e 'Pong\udcff'", "--env", "UTF-8"),
    ("run -e Pong -o -", "-o -: name a file"),
    ("run -e Pong -o nowhere/report.html", "nowhere/report.html"),
    ("run pong", "--env pong", "did you mean Pong?"),
    ("run -e Pong --num-envs 4", "--num-envs; a backend steps --workers times"),
    ("run -e Pong -o run.txt2", "run.txt2", ".jsonl"),
    ("run -e Pong -o a.jsonl -o b.jsonl", "b.jsonl", "one run file"),
    ("bisect --bad main -e Pong", "--good"),
    ("share site submissions", "-o"),
    ("install two", "two: no such installation"),
    ("install", "Missing argument 'NAME"),
    ("run -e Pong -o check.xml", "check.xml", ".md", ".jsonl"),
    ("compare x y -e Pong -f json -o table.csv", "table.csv", ".md", ".jsonl"),
    ("run -e Pong --effort some", "--effort some: must be one of low, normal, high"),
    ("run -e Pong --effort high --quick", "--quick is --effort low"),
    ("run -e Pong -o ''", "-o ''", "name a file"),
    ("run -e Pong -o .", "-o .", "folder"),
    ("run -e Pnog", "Pnog", "Pong"),
    ("run -e Pong --timeout 1", "--timeout"),
    ("run -e Pong -o nowhere/run.jsonl", "nowhere/run.jsonl"),
    ("run -e CartPole -o nowhere/run.jsonl --dry-run", "nowhere/run.jsonl"),
    ("run -e Pong --pin 0-4095", "--pin", "allowed"),
    ("run -e Pong --pin everywhere", "--pin", "compact", "scatter"),
    ("run -e Taxi -b envpool-sync", "EnvPool", "Taxi"),
    ("run --resume nowhere.jsonl", "nowhere.jsonl"),
    ("run Pong --resume nowhere.jsonl", "--resume", "leave out ENV"),
    ("run --resume nowhere.jsonl --windows 9 --no-base", "--resume", "--no-base, --windows"),
    ("run -e CartPole -b nowhere:Adapter", "nowhere"),
    ("run -e CartPole -b faulty:Adaptor", "faulty", "Adaptor"),
    ("run --unheard-of", "--unheard-of"),
    ("check a.jsonl b.jsonl --budget 60", "leave out --budget"),
    ("compare /bin/a /bin/b -e CartPole -b gym-async@/bin/c", "leave out what follows @"),
    ("run -e CartPole --hosts a,,b", "is not the name of a host"),
    ("run -e CartPole --hosts a[via=pigeon]", "via pigeon: must be one of ssh, srun, ray"),
    ("run -e CartPole --hosts a --replicas 2", "--replicas 2: is for one machine"),
    ("run -e CartPole --hosts a --pin 0", "--pin 0: is for one machine"),
    ("run -e CartPole --hosts a --verify", "--verify: compares on this machine"),
    ("run -e CartPole --hosts @nowhere", "--hosts @nowhere: No such file"),
    ("run -e CartPole --hosts a,b[count=3]", "give numbers from 1 to 2"),
    ("run -e CartPole -b gym-async@nowhere", "no Python is called nowhere"),
    ("run -e CartPole -b gym-async@", "a Python is missing after @"),
    ("run -e CartPole -b null@/usr/bin/python3", "null steps nothing"),
    ("run -e CartPole -b gym-async@/nowhere/python", "does not start"),
    ("run -e CartPole -b nothing@/usr/bin/python3", "no such backend"),
    ("run -e CartPole --policy network", "--policy network: write tape, mlp:64x64"),
    ("run -e CartPole --policy nowhere:act", "--policy nowhere:act: ", "No module named 'nowhere'"),
    ("run -e CartPole --policy json:dumbs", "--policy json:dumbs: ", "did you mean dumps"),
    ("run -e CartPole --policy math:pi", "--policy math:pi: pi is not a class or function"),
    ("run -e CartPole --learner 4", "--learner 4: write a time such as 4ms, for each batch, or 300ms/2048"),
    ("run -e CartPole --policy sleep:1ms[cpus=0] --pin none", "--policy sleep:1ms[cpus=0]: its CPUs need pinned cells"),
    ("verify -e Pong -b ceiling,null --steps 5", "ceiling and null cannot be compared"),
    ("run -e batched:without_num_envs", "a vector environment", "num_envs"),
    ("run -e mujoco_warp:HalfCheetah", "not installed: vebench install mujoco-warp"),
    ("run -e vector.py", "vector:FUNCTION"),
    ("run -e vector.py:make_vec", "vector:make_vec"),
    ("run -e CartPole -b AsyncVectorEnv", "gym-async"),
    ("run -e CartPole -b SubprocVecEnv", "sb3-subproc"),
    ("run -e CartPole --num-workers 4", "--workers"),
    ("compare x y -e CartPole --duration nan", "--duration nan: write a time such as"),
    ("report --columns spread", "--columns spread", "no such column", "disturbed_windows"),
    ("report --columns frames", "could be frames_per_second or frames_per_cpu_second"),
    ("report", "no run", "vebench run"),
    ("report nowhere.jsonl", "nowhere.jsonl"),
    ("report -f docx", "docx", "markdown"),
    ("report -o report.docx", ".md"),
    ("doctor --workers 0", "--workers"),
    ("run -e CartPole --allow-code", "--allow-code"),
    ("compare x y --allow-code", "--allow-code"),
    ("check a.jsonl b.jsonl --allow-code", "--allow-code"),
    ("compare -e Pong", "Missing argument 'PYTHON_"),
)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused[0].encode("ascii", "replace").decode())
def test_bad_input_is_one_line_and_leaves_no_file(vebench: Command, refused: tuple[str, ...]) -> None:
    line, *words = refused
    start = FakeStart()
    result = vebench(*shlex.split(line), world=World(start=start))
    assert (result.status, start.started) == (2, [])
    assert result.refusal.startswith("vebench: ")
    assert [word for word in words if word not in result.refusal] == []
    assert [path for path in Path().iterdir() if path.name != ".vebench"] == []
