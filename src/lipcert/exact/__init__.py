"""A second opinion: certificates derived again in ball arithmetic, sharing no code with the rest of the package.

What is shared: the reader of files, the network's numbers, and the errors. Everything else is here: activations
(functions.py), matrices (linear.py), the network and the region as balls (model.py), the step from layer to layer
(ellipsoid.py), intervals (enclose.py), sweeps (sweep.py), outputs (outputs.py) and trees (tree.py). search.py only
makes suggestions: nobody need read it. Any multipliers, lines and cuts prove a bound if they prove one at all, so
taking those of the certificate costs no independence.
"""

from lipcert.errors import LipcertError

try:
    import flint  # noqa: F401
except ImportError:
    raise LipcertError('exact proofs need python-flint: pip install "lipcert[exact]"') from None

from lipcert.exact.check import verify
from lipcert.exact.outputs import Claimed, verify_outputs

__all__ = ["Claimed", "verify", "verify_outputs"]
