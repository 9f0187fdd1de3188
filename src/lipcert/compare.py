"""Methods side by side, under the name that users know; the code is in :mod:`lipcert.questions.compare`."""

from lipcert.questions.compare import Comparison, Row, compare
from lipcert.questions.names import METHODS

__all__ = ["METHODS", "Comparison", "Row", "compare"]
