"""Measure which vector-env backend is fastest on this machine, and how far to trust the rates.

From Python: ``measure``, ``load``, ``check``, ``compare``, ``verify``, loaded on use (docs/reference/python.md).

An editable install maps ``vebench.backends`` and ``vebench.reports`` to the clone's top folders ``backends`` and
``reports``. docs/reference/structure.md has a map.
"""

__version__ = "0.1.0"
HOME = "https://github.com/example/vebench"  # the repository, with the documentation
__all__ = [
    "Comparison", "PairVerification", "Ratio", "Run", "VebenchError", "Verification",
    "check", "compare", "load", "measure", "verify",
]  # fmt: skip

TYPE_CHECKING = False  # as in typing, which takes longer to import than everything else here
if TYPE_CHECKING:
    from vebench.api import (
        Comparison,
        PairVerification,
        Ratio,
        Run,
        Verification,
        check,
        compare,
        load,
        measure,
        verify,
    )
    from vebench.errors import VebenchError
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from vebench import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
