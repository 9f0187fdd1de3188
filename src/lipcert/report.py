"""The report, under the name that users know; the code is in :mod:`lipcert.show.report`."""

from lipcert.show.report import write

__all__ = ["write"]
