"""The entry point: ``vebench``, or ``python -m vebench``. It loads the command line, which takes a moment.

This module imports as little as possible: what is interrupted before ``main`` begins has Python's traceback.
"""

from __future__ import annotations

import codecs
import gc
import os
import signal
import sys

_INTERRUPTED = 130
_REPEAT_S = 0.01
_PLAIN = str.maketrans({"±": "+-", "µ": "u", "·": "-", "…": "...", "→": "->"})


def main() -> None:
    """Run the command line of this process, and exit. Until it is loaded, Ctrl-C ends the process in silence."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # and it is not ignored, as under nohup
    if raises:
        signal.signal(signal.SIGINT, _end)
    from vebench import cli

    gc.set_threshold(1_000_000, 50, 100)  # run files become many objects, and hardly any cycles

    sys.unraisablehook = _send_again
    codecs.register_error("vebench", _plain)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the process was started with it
            stream.reconfigure(errors="vebench")  # type: ignore[union-attr]  # it is a TextIOWrapper
    try:
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.invoke(sys.argv[1:])
    except KeyboardInterrupt:  # just before or after the command
        status = _INTERRUPTED
    # Once Ctrl-C has met text that is executed, as that of a dataclass is, Python ends by the signal and not with this
    # status, although the exception was handled; unless other text is executed since (CPython, Python/pythonrun.c).
    exec("")  # noqa: S102
    sys.exit(status)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return text that every encoding has for what the output's encoding has not."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "replace").decode(), error.end


def _end(*_: object) -> None:
    """End the process: nothing has been started yet, and an exception could be swallowed by what is loaded."""
    os._exit(_INTERRUPTED)


def _send_again(met: sys.UnraisableHookArgs) -> None:
    """Repeat an interrupt that met a callback, such as one of Python's own after an import: it would be lost there."""
    from threading import Timer

    if met.exc_type is KeyboardInterrupt:
        Timer(_REPEAT_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(met)


if __name__ == "__main__":
    main()
