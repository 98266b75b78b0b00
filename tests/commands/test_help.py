"""What a user who knows nothing yet asks for: ``vebench --help``, ``--version`` and ``vebench list``."""

import pytest
from support.commands import Command, registered


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
    assert "[default: 200ms]" in text


def test_the_help_of_run_fits_on_a_screen(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(vebench("run", "--help").out.splitlines()) <= 64


def test_options_are_at_most_114_over_all_commands() -> None:
    shared = 1  # --version
    assert shared + sum(len(command.params) for command in registered().values()) <= 114


def test_an_option_means_one_thing_wherever_it_is() -> None:
    commands = registered().values()
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for option in (one for command in commands for one in command.params if one.opts[0].startswith("--")):
        kinds.setdefault(option.opts[0], set()).add((str(option.metavar), *option.opts))
    assert {name for name, found in kinds.items() if len(found) > 1} == {
        "--output",  # of share make and share site, it is a folder
        "--workers",  # of doctor, it is one number
    }
