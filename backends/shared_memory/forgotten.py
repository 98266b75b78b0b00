"""What is done once nobody holds an object any more, where an interrupt can neither break it off nor be lost.

Python runs signal handlers between any two of its instructions, those of ``__del__`` and of a weak reference's callback
too. There, what the handler of Ctrl-C raises ends the callback, is printed, and is forgotten. So none of these runs
here: C calls C, and what needs Python is done by a thread of its own, in which no handler runs.
"""

from __future__ import annotations

import weakref
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Held = TypeVar("Held")


class IfForgotten(weakref.ref[Held], Generic[Held]):
    """A weak reference that makes a call once its object is gone, unless the reference has gone before.

    ``call`` must be a function of C, such as one of ctypes or ``_thread.start_new_thread``, or a ``partial`` of it.
    """

    call: Callable[[], object]

    def __new__(cls, held: Held, call: Callable[[], object]) -> IfForgotten[Held]:
        """Make the reference to what is held."""
        made = super().__new__(cls, held, _CALL)
        made.call = call
        return made


_CALL: Any = methodcaller("call")  # itself a function of C: Python gives it the reference
