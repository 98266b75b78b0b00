"""The help, and what a shell completes."""

import os
import re
import shlex

import pytest
from support.commands import Command, registered
from support.places import EXAMPLES

from vebench import HOME
from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES
from vebench.options import Parameter
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
    result, group = vebench(), vebench("share")
    assert (result.status, result.out, group.status, group.out) == (2, "", 2, "")
    assert "Usage: vebench" in result.err
    assert "\n  make " in group.err
    sections = ["Measure", "Read", "Regressions", "Same results", "Share", "This machine"]
    assert re.findall(r"^([A-Z][\w ]+):$", result.err, re.MULTILINE)[-6:] == sections
    assert "..." not in result.err.partition("Measure:")[2]  # no command's line is cut


def test_help_names_values_as_users_do(vebench: Command) -> None:
    assert len(vebench("run", "--help").out.splitlines()) <= 64
    text = words(vebench("run", "--help-all").out)
    for example in (
        "vebench run Pong",
        "--env ENV",
        "--workers COUNTS",
        "1..81:*3",
        "[default: 200ms]",
        "[default: 0]",
    ):
        assert example in text
    pong = Task("ALE/Pong-v5", "atari", 4)
    usual = [one.family for one in ENTRIES if one.by_default and not one.reference_row and one.is_usual_for(pong)]
    assert f"[default: {', '.join(dict.fromkeys(f'{one}-*' for one in usual))}]".replace("loop-*", "loop") in text


@pytest.mark.parametrize("name", registered())
def test_help_fits_80_columns_with_rare_options_in_the_long_help_alone(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    own = [one for one in registered()[name].params if isinstance(one, Parameter)]
    short, full = (vebench(*name.split(), option).out for option in ("--help", "--help-all"))
    rare = {one.opts[0] for one in own if one.group == ADVANCED}
    assert {option for option in rare if re.search(rf"^  {option} ", short, re.MULTILINE)} == set()
    assert {one.opts[0] for one in own if f"{one.opts[0]} " not in (full if rare else short)} == set()
    assert [line for line in f"{short}{full}".splitlines() if len(line) > 80] == []
    (page,) = re.findall(rf"{HOME}/blob/HEAD/(docs/\S+\.md)$", short, re.MULTILINE)
    assert (EXAMPLES.parents[1] / page).exists()
    for line in re.findall(rf"^  vebench {name}(.*)$", short.replace("\\\n", " "), re.MULTILINE):
        registered()[name].make_context(name, shlex.split(line))  # each example can be typed


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
        ("vebench ru", "plain,run"),
        ("vebench run Pon", "plain,Pong"),
        ("vebench run -b shm-s", "plain,shm-sync"),
        ("vebench run -e Pong,Half", "plain,Pong,HalfCheetah"),
        ("vebench check --metric spe", "plain,speedup"),
        ("vebench share ma", "plain,make"),
        ("vebench run --resume x", "file,x"),
        ("vebench bisect --repo x", "dir,x"),
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
    assert completed in found.out.split(os.linesep)
