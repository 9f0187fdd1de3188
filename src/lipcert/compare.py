"""Methods side by side, under the name that users know; the code is in :mod:`lipcert.questions.compare`."""

from lipcert.questions.compare import METHODS, Comparison, Row, compare

__all__ = ["METHODS", "Comparison", "Row", "compare"]
