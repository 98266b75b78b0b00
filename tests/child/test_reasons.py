"""The reason of a cell that fails, whatever its environment raises."""

from various import MuteError

from vebench.child.answers import describe
from vebench.child.probe import in_one_line


def test_an_exception_without_a_text_is_named_by_its_class() -> None:
    for tell in (describe, in_one_line):
        assert tell(MuteError()).startswith("MuteError: ")
