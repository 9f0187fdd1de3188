"""What is known of pieces to second order, and of a layer on the way, in shallow networks and deep ones.

With v = v̂ + L + q + R, L linear and q quadratic in the input, and φ'(v) = σ + t·L + ε; see
:mod:`lipcert.proof.second_pieces`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import Array
from lipcert.proof.pieces import Rows
from lipcert.proof.rounding import UP
from lipcert.proof.slope_fits import Fit


@dataclass(frozen=True, eq=False)
class Second(Rows):
    """What was proved of each piece: the Jacobian's norm is at most ``bounds``, its entries at most ``entries``.

    Outputs and their negatives are at most ``outputs``, pre-activations between ``low`` and ``high``; an ``empty``
    piece has no input. A bound that is not finite proves nothing. ``shares`` estimates what each
    neuron adds to the bound, ``near`` the largest norm.
    """

    bounds: Array
    near: Array
    entries: Array
    outputs: Array
    low: Array
    high: Array
    empty: Array
    shares: Array


@dataclass(frozen=True, eq=False)
class Expansion:
    """A hidden layer over all pieces: the polynomial (count, n, d) and (count, n, pairs), and the fit of its slopes.

    ``linear``, ``square`` and ``rest`` (count, n) are at least |L|, |q| and |R|.
    """

    B: Array
    q: Array
    linear: Array
    square: Array
    rest: Array
    fit: Fit

    @property
    def sway(self) -> Array:
        """At least |ε|."""
        rate = np.abs(self.fit.rate)
        known = rate * (self.square + self.rest) + self.fit.straight
        return np.fmin(known, self.fit.apart + rate * self.linear) * UP

    @property
    def error(self) -> Array:
        """At least |ε'|."""
        return (self.fit.error + 0.5 * np.abs(self.fit.bow) * mixed(self.linear, self.square, self.rest)) * UP


def mixed(linear: Array, square: Array, rest: Array) -> Array:
    """At least |(q + R)(2L + q + R)|, which is what s² has beyond L²."""
    return (square + rest) * (2.0 * linear + square + rest)
