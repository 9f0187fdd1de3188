"""BLAS threads: worth having for large matrices only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController, threadpool_limits

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
