"""A second opinion: certificates derived again in ball arithmetic, sharing no code with the rest of the package.

What is shared: the reader of files, the network's numbers, and the errors. Everything else is here: activations
(functions.py), matrices (linear.py), the network and the region as balls (model.py), the step from layer to layer
(ellipsoid.py), intervals (enclose.py), sweeps (sweep.py) and trees (tree.py); and for each kind of answer
what it claims and how that follows: bounds (check.py), reach sets (outputs.py), sensitivities (sensitivity.py, with
jacobian.py) and certified radii (classes.py, with parabolas.py and curvature.py). search.py only makes suggestions:
nobody need read it. Any multipliers, lines and cuts prove a bound if they prove one at all, so taking those of the
answer costs no independence.
"""

from lipcert.errors import LipcertError

try:
    import flint  # noqa: F401
except ImportError:
    raise LipcertError('exact proofs need python-flint: pip install "lipcert[exact]"') from None

from lipcert.exact.check import verify
from lipcert.exact.classes import ClaimedRadius, verify_radius
from lipcert.exact.outputs import Claimed, verify_outputs
from lipcert.exact.sensitivity import ClaimedPairs, Pair, verify_sensitivity
from lipcert.exact.tree import Cut
from lipcert.exact.whole import Evidence

__all__ = [
    "Claimed",
    "ClaimedPairs",
    "ClaimedRadius",
    "Cut",
    "Evidence",
    "Pair",
    "verify",
    "verify_outputs",
    "verify_radius",
    "verify_sensitivity",
]
