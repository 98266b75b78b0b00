"""The help, and what a shell completes."""

import os

import pytest
from support.commands import Command, registered

from vebench.options import Parameter, Section
from vebench.plan.grammar import ADVANCED


def words(text: str) -> str:
    return " ".join(text.split())


def test_list_shows_backends_tasks_and_peers(vebench: Command) -> None:
    result = vebench("list")
    assert result.status == 0
    for word in ("shm-sync", "envpool-async", "Pong", "HalfCheetah", "CartPole", "sb3", "vebench install NAME"):
        assert word in result.out


def test_the_version_is_one_line(vebench: Command) -> None:
    result = vebench("--version")
    assert (result.status, result.err, result.out.count("\n")) == (0, "", 1)
    assert result.out.startswith("vebench ")


def test_without_a_command_the_help_is_on_standard_error(vebench: Command) -> None:
    result = vebench()
    assert (result.status, result.out) == (2, "")
    assert "Usage: vebench" in result.err
    assert [section for section in Section if f"\n{section}:\n" not in result.err] == []


def test_help_names_values_as_users_do(vebench: Command) -> None:
    text = words(vebench("run", "--help-all").out)
    for example in ("vebench run Pong", "--env ENV", "--workers COUNTS", "--duration TIME", "1..81:*3"):
        assert example in text
    assert "[default: 200ms]" in text
    assert "newest run in .vebench/" in words(vebench("report", "--help").out)


@pytest.mark.parametrize("name", registered())
def test_rare_options_are_in_the_long_help_alone(vebench: Command, name: str) -> None:
    own = [one for one in registered()[name].params if isinstance(one, Parameter)]
    short, full = (vebench(*name.split(), option).out for option in ("--help", "--help-all"))
    rare = {one.opts[0] for one in own if one.group == ADVANCED}
    assert {option for option in rare if f"  {option} " in short} == set()
    assert {one.opts[0] for one in own if f"{one.opts[0]} " not in (full if rare else short)} == set()


def test_the_help_of_run_fits_on_a_screen(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(vebench("run", "--help").out.splitlines()) <= 64


def test_an_option_means_one_thing_wherever_it_is() -> None:
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for command in registered().values():
        for option in command.params:
            if option.opts[0].startswith("--"):
                kinds.setdefault(option.opts[0], set()).add((str(option.metavar), *option.opts))
    assert {name for name, found in kinds.items() if len(found) > 1} == {
        "--output",  # of share make and share site, it is a folder
        "--workers",  # of doctor, it is one number
    }


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("vebench ru", "run"),
        ("vebench run Pon", "Pong"),
        ("vebench run -b shm-s", "shm-sync"),
        ("vebench run -e Pong,Half", "Pong,HalfCheetah"),
        ("vebench check --metric spe", "speedup"),
        ("vebench share ma", "make"),
    ],
)
def test_a_shell_completes_commands_options_and_names(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, typed: str, completed: str
) -> None:
    monkeypatch.setenv("_VEBENCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    found = vebench()
    assert (found.status, found.err) == (0, "")
    assert f"plain,{completed}" in found.out.split(os.linesep)


def test_a_shell_completes_files_and_folders(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_VEBENCH_COMPLETE", "bash_complete")
    for typed, kind in (("vebench run --resume x", "file,x"), ("vebench bisect --repo x", "dir,x")):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", "3")
        assert kind in vebench().out.split(os.linesep)


def test_a_group_without_a_command_shows_its_help(vebench: Command) -> None:
    found = vebench("share")
    assert (found.status, found.out) == (2, "")
    assert [line.split()[0] for line in found.err.splitlines() if line.startswith("  make ")] == ["make"]
