"""A call in a process of its own, stopped at a time limit."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from multiprocessing import connection, current_process, get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from lipcert.errors import InvalidInput, LipcertError, ProofFailed

Result = TypeVar("Result")

_UNGUARDED = 79
"""Exit code of a worker that was about to start workers itself."""


class Unguarded(InvalidInput):
    """A script without the usual ``if __name__ == "__main__":`` that starts processes."""

    def __init__(self) -> None:
        super().__init__(
            "this starts processes, each of which imports the script that asks, and the script asks again while it is"
            ' imported; put what it does under the line if __name__ == "__main__":'
        )


def within(seconds: float, function: Callable[..., Result], *arguments: Any) -> Result:
    """What ``function(*arguments)`` returns, computed in a fresh process that is killed after so many seconds.

    The time it takes the process to start is not counted. Function, arguments and result must be picklable, and a
    script that calls this needs the usual ``if __name__ == "__main__":``.

    Raises
    ------
    TimeoutError
        When the limit is reached.
    LipcertError
        What the function raised; :class:`ProofFailed` when the process died.
    Unguarded
        When the script lacks that line, so that the process, which imports it, asks the same question again.
    """
    refuse_import()
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    begun = False
    try:
        begun = bool(ours.recv())
        if not ours.poll(seconds):
            raise TimeoutError(f"stopped after {seconds:g} s")
        result, error = ours.recv()
    except EOFError:
        process.join()
        if process.exitcode == _UNGUARDED:
            raise Unguarded from None
        why = "memory may have run out" if begun else "it could not import the script that asks, see above"
        raise ProofFailed(f"the process ended with code {process.exitcode}; {why}") from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if error is not None:
        raise error
    value: Result = result
    return value


def refuse_import() -> None:
    """End this process if it is a worker that still imports the script that has started it."""
    if getattr(current_process(), "_inheriting", False):
        sys.exit(_UNGUARDED)


def end_with_parent() -> None:
    """Make this process end when its parent does, however that ends."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _work(pipe: Connection[Any, Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    end_with_parent()
    pipe.send("ready")
    try:
        pipe.send((function(*arguments), None))
    except LipcertError as error:
        pipe.send((None, error))
    except MemoryError:
        pipe.send((None, ProofFailed("memory ran out")))
