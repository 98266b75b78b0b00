"""Checksums of a run file's lines: a line that was damaged or changed is noticed when it is read.

The last key of every line is ``crc32``: the CRC-32 of all bytes before it (and before its comma), as eight hexadecimal
digits. The first line also says near its beginning that lines have ``checksums``: so no damage to one place turns the
file into one of a version without checksums, which is read unchecked.

A CRC-32 (``zlib.crc32``, as in gzip and PNG) is certain to differ after a single flipped bit, and after any damage to
four bytes in a row; of other damage it misses one in four billion. A longer digest, such as BLAKE2, would be certain of
nothing, and stop nobody who changes a line on purpose: the new digest can be computed, too.
"""

from __future__ import annotations

import re
import zlib

RUN_BEGINS = b'{"type":"run"'  # as ``records.encode`` writes it
_MARK = b',"checksums":"crc32"'
_END = re.compile(rb',"crc32":"[^"]*"\}\Z')
# As other programs may write the same keys.
_CLAIMS = re.compile(rb'\{\s*"type"\s*:\s*"run"\s*,\s*"checksums"\s*:')
_CLAIMED = re.compile(rb',\s*"crc32"\s*:\s*"[^"]*"\s*\}\s*\Z')
_LENGTH = len(b',"crc32":"00000000"}')


def sealed(line: bytes) -> bytes:
    """Return an encoded line with its checksum, computed anew if it has one."""
    body = _END.sub(b"", line) if _END.search(line) else line.removesuffix(b"}")
    if body.startswith(RUN_BEGINS) and not body.startswith(RUN_BEGINS + _MARK):
        body = RUN_BEGINS + _MARK + body.removeprefix(RUN_BEGINS)
    return body + _end(body)


def claimed(line: bytes) -> bool:
    """Return whether ``line`` has a checksum, or had one before it was damaged or written otherwise."""
    return _CLAIMS.match(line) is not None or _CLAIMED.search(line) is not None


def check(line: bytes) -> None:
    """Raise ValueError, which says what is wrong, unless ``line`` ends with the checksum of its other bytes."""
    line = _whole(line)
    body, end = line[:-_LENGTH], line[-_LENGTH:]
    if end != _end(body):
        what = "does not fit" if _CLAIMED.search(line) else "is missing"
        raise ValueError(f"its checksum (crc32) {what}: the line was damaged, or changed after it was written")


def _whole(line: bytes) -> bytes:
    return line.removesuffix(b"\r")  # which other programs put at the end of lines


def _end(body: bytes) -> bytes:
    return b',"crc32":"%08x"}' % zlib.crc32(body)
