"""What is known of pieces to second order, and of a layer on the way; see :mod:`lipcert.proof.second_pieces`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lipcert.model.arrays import Array
from lipcert.proof.pieces import Rows
from lipcert.proof.rounding import TINY, UP, square_above
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
class Polynomial:
    """The pre-activations v̂ + L + q + w + R of a layer over all pieces.

    Attributes
    ----------
    Z : the coefficients of L, q and w, (count, monomials, n).
    linear, square, cube, rest : at least |L|, |q|, |w| and |R|, (count, n).
    sizes : at least the sum of the sizes of all coefficients, those of q and those of w, (3, count, n).
    bent, twisted : at least |∂q/∂δ_j| and |∂w/∂δ_j|, (count, d, n).
    fuzz : at least what floats lose of ∂p/∂δ_j, (count, n).
    """

    Z: Array
    linear: Array
    square: Array
    cube: Array
    rest: Array
    sizes: Array
    bent: Array
    twisted: Array
    fuzz: Array

    @cached_property
    def beyond(self) -> Array:
        """At least |w + R|."""
        return self.cube + self.rest

    @cached_property
    def more(self) -> Array:
        """At least |a|, a = q + w + R."""
        return self.square + self.beyond

    @cached_property
    def crossed(self) -> Array:
        """At least |(L + a)² - L² - 2Lq|."""
        return np.asarray((2.0 * self.linear * self.beyond + square_above(self.more)) * UP)

    @cached_property
    def cost(self) -> Array:
        """What half of |c| costs beside the error of a fit, about."""
        return np.asarray(2.0 * self.linear * self.rest + square_above(self.more))


@dataclass(frozen=True, eq=False)
class Slopes:
    """The slopes σ + τ₁ + τ₂ + ε of a layer, and at least the sizes of what there is of them, (count, n).

    Attributes
    ----------
    fit : σ, t, c and the error e of the fit.
    slope, rate, bow : |σ|, |t| and |c|.
    swing, sway, off : |τ₁|, |τ₂| and |ε|.
    error, other : |ε - tw - cLq - cLw| and |ε - tw|.
    most, open, whole : |σ| + |φ'(v) - σ|, |φ'(v) - σ - τ₁| and |φ'(v) - σ|.
    """

    fit: Fit
    slope: Array
    rate: Array
    bow: Array
    swing: Array
    sway: Array
    off: Array
    error: Array
    other: Array
    most: Array
    open: Array
    whole: Array

    @staticmethod
    def of(layer: Polynomial, fit: Fit) -> Slopes:
        """By ε = t(w + R) + c/2·((L + a)² - L²) + e, and by what is known of φ'(v) - σ alone."""
        slope, rate, bow = np.abs(fit.slope), np.abs(fit.rate), np.abs(fit.bow)
        linear, more, still = layer.linear, layer.more, rate * layer.rest + fit.error
        # what underflows here is multiplied later on
        swing, bowed = rate * linear * UP + TINY, bow * linear + TINY
        sway = (rate * layer.square + 0.5 * bowed * linear) * UP + TINY
        bent = 0.5 * bow * more + TINY
        apart = (bent * (2.0 * linear + more) + still) * UP
        off = np.fmin((apart + rate * layer.cube) * UP, (fit.apart + swing + sway) * UP)
        error = (bowed * layer.rest + bent * more + still) * UP
        open_ = np.fmin(sway + off, fit.apart + swing) * UP
        whole = np.fmin(fit.apart, (swing + open_) * UP)
        other = np.fmin(apart, (off + rate * layer.cube) * UP)
        return Slopes(fit, slope, rate, bow, swing, sway, off, error, other, (slope + fit.apart) * UP, open_, whole)

    def added(self, layer: Polynomial) -> Array:
        """At least |φ(v) - φ(v̂) - σ(s - R) - t/2·L² - tLq - c/6·L³ - σR|, with s = L + a."""
        third = layer.more * (3.0 * layer.linear * (layer.linear + layer.more) + square_above(layer.more)) + TINY
        return np.asarray((0.5 * self.rate * layer.crossed + self.bow * third / 6.0 + self.fit.rest) * UP)
