"""The entry point: ``vebench``, or ``python -m vebench``. It loads the command line, which takes a moment.

This module imports little, because Python prints a traceback if the user interrupts before ``main`` begins.
"""

from __future__ import annotations

import codecs
import gc
import os
import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run this process's command line, and exit. While ``vebench.cli`` loads, Ctrl-C ends the process in silence."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # false if the parent ignores SIGINT
    if raises:
        # Nothing has been started yet, and a module being imported could swallow an exception.
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from vebench import cli

    gc.set_threshold(1_000_000, 50, 100)  # reading a run file makes many objects, but hardly any cycles
    sys.unraisablehook = _send_again
    codecs.register_error("vebench", _plain)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None if the process was started without this stream
            stream.reconfigure(errors="vebench")  # type: ignore[union-attr]  # it is a TextIOWrapper
    try:
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.invoke(sys.argv[1:])
    except KeyboardInterrupt:  # just before or after the command
        status = _INTERRUPTED
    # If Ctrl-C interrupts ``exec`` of a string, which dataclasses use, Python later ends by the signal instead of with
    # ``status``, although the exception was handled. Another ``exec`` resets that (CPython, Python/pythonrun.c).
    exec("")  # noqa: S102
    sys.exit(status)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return an ASCII replacement for characters that the output's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = str.maketrans({"±": "+-", "µ": "u", "·": "-", "…": "...", "→": "->"})
    text = error.object[error.start : error.end].translate(plain)
    return text.encode("ascii", "replace").decode(), error.end


def _send_again(raised: sys.UnraisableHookArgs) -> None:
    """Repeat an interrupt that was raised in a callback, where Python would only print it.

    For example, Python itself runs a callback after each import.
    """
    from threading import Timer

    if raised.exc_type is KeyboardInterrupt:
        Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(raised)


if __name__ == "__main__":
    main()
