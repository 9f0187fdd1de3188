"""A call in a process of its own, stopped at a time limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from lipcert.errors import LipcertError, ProofFailed

Result = TypeVar("Result")


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
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        ours.recv()
        if not ours.poll(seconds):
            raise TimeoutError(f"stopped after {seconds:g} s")
        result, error = ours.recv()
    except EOFError:
        process.join()
        died = f"the process ended with code {process.exitcode}; memory may have run out"
        raise ProofFailed(died) from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if error is not None:
        raise error
    value: Result = result
    return value


def end_with_parent() -> None:
    """Let this process end when the one that started it is gone, in whatever way."""
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
