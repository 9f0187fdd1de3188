"""The machine: threads, memory and speed, and calls in a process of their own, stopped at a time limit."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import connection, current_process, get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

from lipcert.arguments.values import entries
from lipcert.errors import InvalidInput, LipcertError, ProofFailed
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network

THREADED_FROM = 600
"""Width from which threaded products pay; below it a second thread mostly waits."""


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def suited_to(width: int) -> Iterator[None]:
    """Within the block, one BLAS thread if matrices of this width are too small to share."""
    if width >= THREADED_FROM:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


def one_thread() -> None:
    """From now on one BLAS thread, for worker processes."""
    threadpool_limits(limits=1, user_api="blas")


_SMALL: Final = 2000
"""Layers of fewer neurons are not checked: their matrices, 32 MB each, fit into any memory."""
_DEPTH: Final = 24
"""Layers that back-substitution goes back by default."""
_SPEED: Final = 2e10
"""Operations a second that a machine is expected to do."""


class NoRoom(ProofFailed):
    """A proof would need more memory than is free."""


def enclosing_seconds(network: Network) -> float:
    """Seconds that intervals of all neurons by back-substitution take, about; no matrix is made for that."""
    linears = [layer.linear for layer in network.layers[:-1]]
    stored = [one.entries if isinstance(one, Convolution) else entries(one) for one in linears]
    earlier = [sum(stored[max(0, i - _DEPTH) : i]) for i in range(len(stored))]
    work = sum(4.0 * layer.size * ahead for layer, ahead in zip(network.layers, earlier, strict=False))
    return work / _SPEED


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    folder = Path("/sys/fs/cgroup")
    try:  # what is left of the control group's share, where there is one
        most, used = ((folder / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return min(free, int(most) - int(used))
    except (OSError, ValueError):
        return free


def require_memory(neurons: int, layer: int, open_: int, ahead: int) -> None:
    """Refuse to start what cannot end: a layer whose matrices exceed the free memory.

    So many neurons are carried, of which ``open_`` have open slopes; the next layer has ``ahead``. A step holds the
    ellipsoid before and after it, and a copy; the columns of the open neurons, and copies; what the next layer sees of
    both.
    """
    if neurons < _SMALL:
        return
    numbers = 3 * neurons**2 + 2 * neurons * open_ + 4 * open_**2 + ahead * (2 * neurons + 2 * open_)
    free, needed = available_memory(), 8 * numbers
    if free is not None and needed > free:
        raise NoRoom(
            f"layer {layer} has {neurons} neurons to carry, {open_} of them with open slopes: about"
            f" {needed / 1e9:.3g} GB are needed, but {free / 1e9:.3g} GB are free; a smaller region leaves fewer"
            " slopes open"
        )


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
