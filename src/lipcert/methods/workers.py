"""Pieces that are bounded by several processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from lipcert.kernel.cover import Cover, prepare
from lipcert.kernel.piece_bounds import Bounding
from lipcert.runtime.threads import one_thread


@contextmanager
def covering(bounding: Bounding, workers: int = 1) -> Iterator[Cover]:
    """The region as one piece; with more than one worker, as many processes bound what it is cut into."""
    if workers <= 1:
        yield Cover(bounding)
        return
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=(bounding,)) as pool:
        yield Cover(bounding, pool, workers)


def _begin(bounding: Bounding) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that has the tree
    one_thread()
    prepare(bounding)
