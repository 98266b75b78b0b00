"""What a user who knows nothing yet asks for: ``vebench --help``, ``--version`` and ``vebench list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.commands import Command


def words(text: str) -> str:
    return " ".join(text.split())


def test_list_shows_backends_and_tasks(vebench: Command) -> None:
    result = vebench("list")
    assert result.status == 0
    for word in ("shm-sync", "envpool-async", "Pong", "HalfCheetah", "CartPole"):
        assert word in result.out


def test_the_version_is_one_line(vebench: Command) -> None:
    result = vebench("--version")
    assert (result.status, result.err, result.out.count("\n")) == (0, "", 1)
    assert result.out.startswith("vebench ")


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("report", "-h")], ids=" ".join)
def test_help_is_there_for_each_command(vebench: Command, arguments: tuple[str, ...]) -> None:
    result = vebench(*arguments)
    assert (result.status, result.err) == (0, "")
    assert "Usage: vebench" in result.out


def test_without_a_command_the_help_is_on_standard_error_and_the_status_is_2(vebench: Command) -> None:
    result = vebench()
    assert (result.status, result.out) == (2, "")
    assert "Usage: vebench" in result.err


def test_help_has_examples_and_names_values_as_users_do(vebench: Command) -> None:
    text = words(vebench("run", "--help").out)
    for example in ("vebench run -e Pong -w 1..8", "--env ENV", "--workers COUNTS", "--duration TIME", "1..81:*3"):
        assert example in text
    assert "TEXT" not in text
    assert "FLOAT" not in text
    assert "newest run in .vebench/" in words(vebench("report", "--help").out)


@pytest.mark.parametrize(
    ("command", "required"),
    [("run", "Required without --resume."), ("compare", "Required without --resume."), ("verify", "Required.")],
)
def test_help_says_that_an_environment_must_be_named(vebench: Command, command: str, required: str) -> None:
    assert f"MODULE:ID ... Comma or repeat. {required} -" in words(vebench(command, "--help").out)


def test_help_says_that_a_comparison_is_drawn_anew(vebench: Command) -> None:
    assert "Default: drawn anew." in words(vebench("verify", "--help").out)


@pytest.mark.parametrize("command", ["run", "compare", "verify"])
def test_help_says_what_the_timeout_ends_whether_cells_are_measured_or_compared(vebench: Command, command: str) -> None:
    assert "Longest time for a cell, or for comparing a backend, before it is ended." in words(
        vebench(command, "--help").out
    )
