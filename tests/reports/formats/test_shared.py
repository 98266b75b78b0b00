"""File names in documents that others read."""

from __future__ import annotations

import pytest

from vebench.reports.figures import without_folders


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vebench run --resume /home/ada/runs/pong.jsonl", "vebench run --resume pong.jsonl"),
        ("vebench run -o '/home/ada lovelace/pong.jsonl' -w 2", "vebench run -o 'pong.jsonl' -w 2"),
        ("--a=/opt/old/bin/python --b=/opt/new/bin/python3.13", "--a=python --b=python3.13"),
        ('File "/usr/lib/python3/site-packages/gym.py", line 3', 'File "gym.py", line 3'),
        ("(/home/ada/env.py:12)", "(env.py:12)"),
        ("PYTHONPATH=/home/ada/a:/home/ada/b", "PYTHONPATH=a:b"),
        ("see file:///home/ada/run.log.", "see run.log."),
        ("no space in /scratch", "no space in scratch"),
        ("in /home/ada/", "in ada"),
    ],
)
def test_an_absolute_path_becomes_its_last_part(text: str, shown: str) -> None:
    assert without_folders(())(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "13,120 frames/s and 3 / 4, 5 frames /s",
        "runs/pong.jsonl, ./pong.jsonl, ../runs/pong.jsonl and ~/runs/pong.jsonl",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html",
        "ALE/Pong-v5: mymodule:Backend",
        "echo performance > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "mount -o remount,size=1G /dev/shm, see /proc/meminfo",
        "<b>bold</b>",
        "2026-11-21T08:15:00+00:00",
    ],
)
def test_what_is_no_absolute_path_stays_as_it_is(text: str) -> None:
    assert without_folders(())(text) == text


def test_a_known_file_is_found_whatever_its_name_holds() -> None:
    plain = without_folders(["/tmp/my runs, (old)/a b.jsonl", "relative name.jsonl"])  # noqa: S108 - names alone
    assert plain("comparable with /tmp/my runs, (old)/a b.jsonl: the same") == "comparable with a b.jsonl: the same"
    assert plain("vebench run --resume relative name.jsonl") == "vebench run --resume relative name.jsonl"
