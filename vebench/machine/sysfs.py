"""Files of sysfs, procfs and control groups: their text, and the sets of numbers in them.

A file that is missing or damaged reads as an empty one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Cpus = tuple[int, ...]

MAX_CPU = 1 << 16  # beyond any kernel's NR_CPUS: a typing error or a damaged file, not a machine


def text_of(path: Path) -> str:
    """Return the text of a file, stripped; an empty string if it is missing or cannot be read."""
    try:
        return path.read_text(errors="replace").strip(" \t\r\n\0")
    except OSError:
        return ""


def parse_list(text: str) -> Cpus:
    """Return the numbers of a Linux list (``0-3,8``), ascending; empty if ``text`` is not such a list."""
    numbers: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if last > MAX_CPU:
            return ()
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def parse_mask(text: str) -> Cpus:
    """Return the numbers of a Linux mask (``00000000,0000000f``: words of 32 bits, the highest first), ascending."""
    if re.fullmatch(r"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*", text, re.ASCII | re.IGNORECASE) is None:
        return ()
    bits = 0
    for word in text.split(","):
        bits = bits << 32 | int(word, 16)
    return tuple(index for index, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def cpus_in(path: Path) -> Cpus:
    """Return the CPUs in a file: a list if its name ends in ``list``, as in the kernel, otherwise a mask."""
    text = text_of(path)
    return parse_list(text) if path.name.endswith("list") else parse_mask(text)


def number_in(path: Path) -> int | None:
    """Return the integer in a file, None if there is none."""
    text = text_of(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def entries(folder: Path, prefix: str) -> list[int]:
    """Return the numbers N of all entries named ``prefixN`` in a folder, ascending."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    matches = (re.fullmatch(rf"{prefix}(\d{{1,6}})", name, re.ASCII) for name in names)
    return sorted(int(match[1]) for match in matches if match)
