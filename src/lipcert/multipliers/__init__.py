"""Ways to choose the multipliers."""

from lipcert.multipliers.base import Greedy, Method, Stage
from lipcert.multipliers.closed_form import ClosedForm
from lipcert.multipliers.diagonal import Diagonal
from lipcert.multipliers.joint import Joint
from lipcert.multipliers.scalar import Scalar

__all__ = ["ClosedForm", "Diagonal", "Greedy", "Joint", "Method", "Scalar", "Stage"]
