"""How numbers are written, and file names in documents that others read."""

import pytest

from vebench.analysis.statistics import Estimate
from vebench.reports import figures
from vebench.reports.figures import without_folders


@pytest.mark.parametrize(
    ("value", "text"),
    [(13120.4, "13,120"), (99.96, "100"), (42.34, "42.3"), (2.3149, "2.31"), (0.411, "0.41"), (0.0042, "0.0042")],
)
def test_numbers_keep_three_digits_or_more(value: float, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(100.0, 98.6, 101.4), "±1.4%"), (Estimate(100.0, 80.0, 125.0), "±25%"),
        (Estimate(100.0, 10.0, 1000.0), "±>100%"), (Estimate(100.0, 99.99, 100.01), "±<0.1%"),
        (Estimate(100.0), "(no interval)"), (Estimate(0.0, 0.0, 12.0), "(to 12.0)"),
    ],
)  # fmt: skip
def test_a_spread_is_the_larger_half_of_the_interval(estimate: Estimate, text: str) -> None:
    assert figures.spread(estimate) == text


@pytest.mark.parametrize(("seconds", "text"), [(45.4, "45 s"), (320, "5 min 20 s"), (3659.7, "1 h 01 min")])
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert figures.long_time(seconds) == text


def test_a_sparkline_shows_a_drop_but_not_noise_of_the_last_values() -> None:
    assert figures.sparkline([0.0, 0.0, -0.4, -0.4]) == "▇▇▁▁"
    assert len(set(figures.sparkline([0.0, 0.001, -0.001]))) == 1
    assert figures.sparkline([0.0] * 300 + [1.0] * 10) == "▁" * (30 - 10) + "▇" * 10


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vebench run --resume /home/ada/runs/pong.jsonl", "vebench run --resume pong.jsonl"),
        ("vebench run -o '/home/ada lovelace/pong.jsonl' -w 2", "vebench run -o 'pong.jsonl' -w 2"),
        ("--a=/opt/old/bin/python --b=/opt/new/bin/python3.13", "--a=python --b=python3.13"),
        ('File "/usr/lib/python3/site-packages/gym.py", line 3', 'File "gym.py", line 3'),
        ("(/home/ada/env.py:12)", "(env.py:12)"), ("PYTHONPATH=/home/ada/a:/home/ada/b", "PYTHONPATH=a:b"),
        ("see file:///home/ada/run.log.", "see run.log."), ("no space in /scratch", "no space in scratch"),
        ("in /home/ada/", "in ada"),
    ],
)  # fmt: skip
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
    plain = without_folders(["/tmp/my runs, (old)/a b.jsonl", "relative name.jsonl"])
    assert plain("comparable with /tmp/my runs, (old)/a b.jsonl: the same") == "comparable with a b.jsonl: the same"
    assert plain("vebench run --resume relative name.jsonl") == "vebench run --resume relative name.jsonl"
