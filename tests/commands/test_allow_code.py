"""Run files name environments, backends, policies, Pythons and hosts: only what is vebench's own is used unasked."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import msgspec
import pytest
from support.commands import ONE_PASS, Command
from support.fakes import FakeStart, fake_world, interrupted
from support.places import ADAPTERS
from support.records import make_cell, make_header, write_run

from vebench.backends.registry import ENTRIES
from vebench.child.actions import parse_policy
from vebench.interpreters import PLUGINS
from vebench.plan.grammar import parse_envs
from vebench.plan.spec import RunSpec
from vebench.plan.tasks import not_ours
from vebench.results.records import InterpreterRecord, Run

ALLOW = "--allow-code"
MARK = "mark"  # the file that hostile code makes, in the user's folder
MODULE = f"""
import os, pathlib, sys
pathlib.Path({{mark!r}}).touch()
sys.path.append({str(ADAPTERS)!r})
from faulty import Sound
import gymnasium
gymnasium.register("Own-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
def make(title=""):
    return gymnasium.make("Own-v0")
def act(observations):
    raise AssertionError
"""

# ``mine`` is in the current folder, ``theirs`` is installed, and the rest comes with Python or with vebench.
ENVIRONMENTS = (
    *("os:system[command=touch {mark}]", "posix:system[command=touch {mark}]", "builtins:open[file={mark},mode=w]"),
    *("subprocess:getoutput[cmd=touch {mark}]", "importlib:import_module[name=theirs]", "runpy:run_path[path=mine.py]"),
    *("theirs:make[title=a:b]", "theirs:Own-v0", "theirs:Own", "theirs:CartPole-v1", "mine:make", "mine:Own-v0"),
    *("box.mine:make", "box.mine:Own-v0", "mine:ALE/Pong-v5", "ale_py:ALE/Pong-v5", "gymnasium:make[id=theirs:Own-v0]"),
    *("vebench.backends.environments.suites:load[target=os:getcwd]", "vebench.cli:main", "mine:vebench/Sleep-1us-v0"),
    *("a:b:c", ":CartPole", "CartPole:", "Own-v0", "Own", "CartPole2-v1", "os.system"),
    *("GymV26Environment-v0[env_id=theirs:Own-v0]", "GymV21Environment-v0", "HalfCheetah[xml_file=/tmp/x.xml]"),
    *("gymnax:CartPole-v1[a=os:getcwd]", "gymnaxes:CartPole-v1", "brax:ant[backend=mine]"),
    *("CartPole[render_mode=human]", "ALE/Pong-v5[obs_type=ram]", "FrozenLake-v1[desc=os:getcwd]", "CartPole[a=inf]"),
    *("dm_control/cartpole-balance-v0[domain=theirs]", "MiniGrid-Empty-8x8-v0[agent_view_size=os]"),
    *("MiniGrid-Empty-8x8-v0:make", "ALE/Pong:make", "\uff30ong", "o\u0455:system"),
    *("Taxi-v\u0663", "CartPole-v\u0663"),
)  # fmt: skip
BACKENDS: tuple[dict[str, Any], ...] = (
    *({"name": name} for name in ("os:system", "theirs:Sound", "mine:Sound", "box.mine:Sound")),
    {"name": "theirs:Sound", "options": {"length": 3}},
    *({"name": "gym-sync", "python": path} for path in ("./python", sys.executable, "sb3", "~/python")),
)
# What a file may not set by itself, by the field of its spec: each value is one hostile file.
NAMED: dict[str, list[dict[str, Any]]] = {
    "envs": [{"envs": [env]} for env in ENVIRONMENTS] + [{"envs": ["mine:make", "CartPole"]}],
    "backends": [{"backends": [choice]} for choice in BACKENDS] + [{"backends": [{"name": "gym-sync"}, BACKENDS[2]]}],
    "policy": [
        {"policy": {"kind": kind, "target": name}}
        for name in ("os:system", "mine:act", "a.b:c.d")
        for kind in ("function", "tape")
    ],
    "hosts": [
        {"hosts": {"names": ["evil.example"]}},
        {"hosts": {"names": ["a", "b"], "via": "srun"}},
        {"hosts": {"names": ["a"], "counts": [1]}},
        {"hosts": {"via": "ray"}},
        {"hosts": {"via": "ray", "address": "evil.example:6379"}},
        {"hosts": {"names": ["a"], "python": "./python"}},
    ],
}
# Numbers, words out of a few, and lists of CPUs: nothing that is looked up, started or connected to.
HARMLESS = {
    *("workers", "envs_per_worker", "only", "duration", "windows", "warmup", "passes", "until", "budget", "base"),
    *("interleave", "isolation", "race", "seed", "pin", "replicas", "memory", "timeout", "proof", "learner"),
    *("suite", "algorithm", "library", "waiting"),
}
HOSTILE = [spec for specs in NAMED.values() for spec in specs]
COMMANDS = (
    ("run", "--resume", "theirs.jsonl"),
    ("run", "--resume", "theirs.jsonl", "--dry-run"),
    ("check", "theirs.jsonl"),
    ("tune", "--resume", "theirs.jsonl"),
)
OF_FOLDERS = (("report", "runs"), ("history", "runs"))
READERS = (("report", "theirs.jsonl", "--all"), *OF_FOLDERS, ("check", "theirs.jsonl", "other.jsonl"))


class ReachedError(BaseException):
    """A process was to be started."""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that is made by whatever is imported: of the current folder, or of what is installed."""
    mark = tmp_path / MARK
    for folder in ("box", "site", "runs"):
        (tmp_path / folder).mkdir()
    for path in ("mine.py", "box/mine.py", "site/theirs.py"):
        (tmp_path / path).write_text(MODULE.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "site"), str(ADAPTERS))))
    return mark


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process that is to be started raise ReachedError: lookups, Pythons, cells and connections are processes."""

    def reached(*_: object, **__: object) -> NoReturn:
        raise ReachedError

    monkeypatch.setattr(subprocess.Popen, "__init__", reached)
    monkeypatch.setattr("vebench.hosts.require_ray", reached)
    for name in ("system", "posix_spawn", "fork"):
        monkeypatch.setattr(os, name, reached)


def naming(path: Path, named: dict[str, Any], **header: object) -> Path:
    """Write a run of CartPole with gym-sync, or with what is named, as vebench writes it: all checksums are right."""
    asked = {"envs": ["CartPole"], "workers": [1], "windows": 1, "backends": [{"name": "gym-sync"}]}
    head = make_header(**{**asked, **named})
    env, backend = head.spec.envs[0], head.spec.backends[-1]
    cell = make_cell(backend.name, 1, (2300,) * 4, env={"CartPole": "CartPole-v1"}.get(env, env))
    cells = [replace(cell, options=backend.options, python=backend.python, repeat=repeat) for repeat in range(3)]
    return write_run(path, Run(msgspec.structs.replace(head, **header), tuple(cells)))


def hostile(folder: Path, named: dict[str, Any]) -> None:
    """Write the files that ``COMMANDS`` and ``READERS`` read, with what is named in each."""
    marked = json.loads(json.dumps(named).replace("{mark}", str(folder / MARK)))
    naming(folder / "theirs.jsonl", {**marked, "only": ["gym-sync:1x1"]})
    naming(folder / "other.jsonl", marked)
    naming(folder / "runs" / "theirs.jsonl", marked)


def test_somebody_has_decided_for_each_field_of_a_spec_whether_a_file_may_set_it() -> None:
    assert NAMED.keys() | HARMLESS == {field.name for field in fields(RunSpec)}
    assert not NAMED.keys() & HARMLESS


def test_no_option_of_a_backend_is_free_text_which_may_name_a_folder_or_a_module() -> None:
    for entry in ENTRIES:
        for option in entry.options.values():
            with pytest.raises(ValueError, match=r"\w"):
                option.parse("/tmp/folder")


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("named", HOSTILE, ids=str)
def test_nothing_starts_what_a_file_names(vebench: Command, mark: Path, tmp_path: Path, named: dict[str, Any]) -> None:
    hostile(tmp_path, named)
    loaded = set(sys.modules)
    for command in COMMANDS:
        refused = vebench(*command)
        assert (refused.status, refused.refusal.startswith("vebench: ")) == (2, True)
    assert not {"mine", "theirs", "box"} & (sys.modules.keys() - loaded)
    assert not mark.exists()


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("named", [specs[0] for specs in NAMED.values()], ids=str)
def test_what_shows_runs_starts_nothing(vebench: Command, mark: Path, tmp_path: Path, named: dict[str, Any]) -> None:
    hostile(tmp_path, named)
    for command in READERS:
        vebench(*command)
    assert not mark.exists()


@pytest.mark.usefixtures("nothing_starts", "mark")
@pytest.mark.parametrize("command", [command for command in COMMANDS if command[0] != "check"], ids=" ".join)
@pytest.mark.parametrize("named", [specs[0] for specs in NAMED.values()], ids=str)
def test_the_refusal_names_the_value_and_the_flag_with_which_the_command_goes_on(
    vebench: Command, tmp_path: Path, command: tuple[str, ...], named: dict[str, Any]
) -> None:
    hostile(tmp_path, named)
    refused = vebench(*command)
    assert ALLOW in refused.refusal
    assert any(part in refused.refusal for part in (*map(str, named.get("envs", ())), "os:system", "evil.example"))
    with pytest.raises(ReachedError):
        vebench(*command, ALLOW)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    "line", [{"backend": "os:system"}, {"backend": "mine:Sound"}, {"python": "./python"}, {"env": "mine:make"}], ids=str
)
def test_lines_of_cells_name_no_more_than_the_first_line(vebench: Command, mark: Path, line: dict[str, Any]) -> None:
    head = make_header(envs=["CartPole"], workers=[1], windows=1, backends=[{"name": "gym-sync"}])
    cell = replace(make_cell("gym-sync", 1, (2300,) * 4, env="CartPole-v1"), **line)
    write_run(Path("theirs.jsonl"), Run(head, (cell,)))
    assert vebench("check", "theirs.jsonl").status == 2
    assert vebench("run", "--resume", "theirs.jsonl", "--dry-run").status == 3  # measured elsewhere
    assert not mark.exists()


@pytest.mark.usefixtures("nothing_starts", "mark")
def test_what_vebench_has_itself_needs_no_flag(vebench: Command, tmp_path: Path) -> None:
    named = {
        "envs": ["Pong", "HalfCheetah-v5", "CartPole"],
        "backends": [{"name": "gym-async", "options": {"context": "spawn"}}, {"name": "envpool-async"}],
        "policy": {"kind": "sleep", "pause": "1ms"},
    }
    head = {"command": f"touch {MARK}", "interpreters": {"gym-sync": InterpreterRecord("./python", "3.11.9", {})}}
    naming(tmp_path / "theirs.jsonl", named, **head)
    assert "measured elsewhere" in vebench("run", "--resume", "theirs.jsonl").refusal
    for policy in ("tape", "nature-cnn", "mlp:64x64", "sleep:0.5ms"):
        assert not list(not_ours(RunSpec(("CartPole",), (1,), policy=parse_policy(policy))))


def test_registered_ids_are_known_except_those_that_make_any_environment() -> None:
    for plugin in PLUGINS:
        try:
            gymnasium.register_envs(import_module(plugin))
        except ImportError:
            continue
    packages = ("gymnasium", *PLUGINS)
    ids = [
        name
        for name, spec in gymnasium.registry.items()
        if str(getattr(spec.entry_point, "__module__", spec.entry_point)).split(".")[0] in packages
    ]
    assert set(not_ours(RunSpec(tuple(ids), (1,)))) == {"--env GymV21Environment-v0", "--env GymV26Environment-v0"}
    named = parse_envs(["CartPole[max_episode_steps=50]", "FrozenLake[is_slippery=false]", "Ant-v5[noise=0.5]", "pong"])
    assert list(not_ours(RunSpec(tuple(named), (1,)))) == ["--env pong"]


@pytest.mark.usefixtures("nothing_starts", "mark")
@pytest.mark.parametrize(
    ("named", "given"),
    [
        ({"envs": ["mine:Own-v0"]}, ("--env", "mine:Own-v0")),
        ({"envs": ["mine:Own"]}, ("--env", "mine:Own")),
        ({"envs": ["mine:make[title=a]"]}, ("--env", "mine:make[title=a]")),
        ({"envs": ["HalfCheetah[xml_file=x.xml]"]}, ("--env", "HalfCheetah[xml_file=x.xml]")),
        ({"backends": [{"name": "mine:Sound", "options": {"length": 3}}]}, ("--backend", "mine:Sound[length=3]")),
        ({"backends": [{"name": "gym-sync", "python": "./python"}]}, ("--backend", "gym-sync@./python")),
    ],
)
def test_what_the_user_names_to_a_check_is_not_only_the_files(
    vebench: Command, tmp_path: Path, named: dict[str, Any], given: tuple[str, str]
) -> None:
    naming(tmp_path / "theirs.jsonl", named)
    if named.get("envs", [""])[0].startswith("mine:Own"):  # a cell has the id alone
        run = make_header(**{"workers": [1], "windows": 1, "backends": [{"name": "gym-sync"}], **named})
        write_run(tmp_path / "theirs.jsonl", Run(run, (make_cell("gym-sync", 1, (2300,) * 4, env="Own-v0"),)))
    for part in ((), ("--env", "own-v0"), ("--backend", "mine:Sound")):
        refused = vebench("check", "theirs.jsonl", *part)
        assert (refused.status, refused.refusal.startswith("vebench: ")) == (2, True)
    with pytest.raises(ReachedError):
        vebench("check", "theirs.jsonl", *given)


# From here on, with real processes.
REAL = {
    "adapter": {"backends": [{"name": "mine:Sound"}]},
    "callable": {"envs": ["mine:make[title=a:b]"]},
    "installed": {"envs": ["theirs:Own-v0"]},
}


@pytest.mark.parametrize("what", REAL)
def test_with_the_flag_it_is_used(vebench: Command, mark: Path, tmp_path: Path, what: str) -> None:
    hostile(tmp_path, REAL[what])
    assert vebench("run", "--resume", "other.jsonl", "--dry-run").status == 2
    assert not mark.exists()
    vebench("run", "--resume", "other.jsonl", "--dry-run", ALLOW)
    assert mark.exists()


def test_modules_in_the_current_folder_are_not_imported_unless_named(
    vebench: Command, mark: Path, tmp_path: Path
) -> None:
    for name in ("jax", "cffi", "shimmy", "minigrid", "Box2D"):
        (tmp_path / f"{name}.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    plan = ("-e", "CartPole,FrozenLake-v1", "-w", "1", "-b", "envpool-sync,for-loop", *ONE_PASS, "--proof", "full")
    brief = ("--windows", "1", "--duration", "0.01", "--warmup", "0", "--no-base")
    assert vebench("run", *plan, *brief, "-o", "ours.jsonl", "-q").status == 0
    assert not mark.exists()


def test_what_the_user_types_is_imported_and_its_run_is_resumed_with_a_word_more(vebench: Command, mark: Path) -> None:
    plan = ("-e", "CartPole", "-w", "1", "-b", "mine:Sound", "--no-base", *ONE_PASS)
    brief = ("--windows", "1", "--duration", "0.01", "--warmup", "0")
    assert vebench("run", *plan, *brief, "-o", "ours.jsonl", "-q").status == 0
    assert mark.exists()
    mark.unlink()
    assert vebench("run", "--resume", "ours.jsonl", "-q").status == 2
    assert not mark.exists()
    assert vebench("run", "--resume", "ours.jsonl", "-q", ALLOW).status == 0


@pytest.mark.usefixtures("mark")
def test_the_command_that_goes_on_with_a_run_of_the_users_own_code_can_be_pasted(vebench: Command) -> None:
    start = FakeStart({"mine:Sound": interrupted})
    plan = ("-e", "CartPole", "-w", "1", "-b", "mine:Sound,gym-sync", "--no-base", *ONE_PASS)
    stopped = vebench("run", *plan, "-o", "ours.jsonl", "-q", world=fake_world(start))
    _, _, again = stopped.refusal.strip().partition("to continue: vebench ")
    assert again == f"run --resume ours.jsonl {ALLOW}"
    start.scripts = {}
    assert vebench(*again.split(), world=fake_world(start)).status == 0


def test_an_installed_module_comes_before_one_of_that_name_in_the_current_folder(vebench: Command, mark: Path) -> None:
    Path("site", "mine.py").write_text(MODULE.format(mark=str(Path("installed").absolute())))
    naming(Path("theirs.jsonl"), REAL["adapter"])
    assert vebench("run", "--resume", "theirs.jsonl", "--dry-run", ALLOW).status == 3  # measured elsewhere
    assert (Path("installed").exists(), mark.exists()) == (True, False)
