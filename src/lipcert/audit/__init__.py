"""A second opinion: answers derived again in ball arithmetic, sharing no arithmetic with the rest of the package.

What is shared: the network's numbers, the answers as data, and suggestions of lines, axes and factors, which nothing
rests on. Everything else is here or in :mod:`lipcert.definitions` (activations): arrays of balls and their norms
(balls.py); the network, the region and the pass through the layers (engine.py); how far activations are from
polynomials, and Taylor models and bounds to second order, which follow (second_order.py); pieces of a region
(pieces.py); and what each kind of answer claims (answers.py). Any multipliers, lines and cuts prove a bound if they
prove one at all, so taking those of the answer costs no independence.
"""

import lipcert.definitions  # noqa: F401  (it says what to install if python-flint is missing)
from lipcert.audit.answers import verify, verify_discrepancy, verify_radius, verify_reach, verify_sensitivity

__all__ = ["verify", "verify_discrepancy", "verify_radius", "verify_reach", "verify_sensitivity"]
