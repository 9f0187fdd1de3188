"""The checker: intervals, slopes, ellipsoids and the bound again, from hints, in real arithmetic.

Notation as in certify.py. A matrix inequality P ≼ P̂ between the real P and a float matrix P̂ is kept true from layer
to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import linalg

from lipcert.certificate import Certificate, Part, Sweep
from lipcert.enclosures import Linear, Lipschitz
from lipcert.errors import ProofFailed
from lipcert.network import Network, dense, times
from lipcert.regions import Region
from lipcert.threads import suited_to
from lipcert.typing import Array
from lipcert.verify.relaxation import Relaxation, relax, slope_bounds
from lipcert.verify.rounding import (
    TINY,
    UP,
    apply,
    congruence,
    down,
    gamma,
    largest_eigenvalue_above,
    magnitude,
    raise_diagonal,
    spread,
    stretched,
    up,
)
from lipcert.verify.support import support_above
from lipcert.verify.trajectory import trajectory
from lipcert.verify.tree import prove_tree

Interval = tuple[Array, Array]
ROOM = 1.0 + 2.0**-40
"""A certified bound is enlarged by this, so that another machine's rounding can confirm it."""


def verify(network: Network, certificate: Certificate) -> float:
    """Re-derive a certificate's bound from its hints.

    Returns
    -------
    float
        The bound as proved now: ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of the certificate's region, in real
        arithmetic, for the function given by the network's float64 weights.

    Raises
    ------
    ProofFailed
        If the network is another one, or the hints do not prove the bound that the certificate claims.
    """
    if certificate.region.dimension not in (None, network.inputs):
        raise ProofFailed(
            f"the certificate's region has {certificate.region.dimension} coordinates, not {network.inputs}"
        )
    if certificate.network != network.digest:
        raise ProofFailed(
            f"the certificate is about another network: its digest is {certificate.network[:12]}…, "
            f"this network's is {network.digest[:12]}…"
        )
    bound = prove(network, certificate.region, certificate.sweeps, certificate.part, certificate.part_sweeps)
    if certificate.tree is not None and not certificate.part_sweeps:
        with suited_to(max(network.sizes)):
            bound = min(bound, prove_tree(network, certificate.region, certificate.tree, certificate.sweeps[-1]))
    if not bound <= certificate.bound:
        raise ProofFailed(f"the certificate claims {certificate.bound!r}, its hints prove no better than {bound!r}")
    return bound


def prove(
    network: Network,
    region: Region,
    sweeps: Sequence[Sweep],
    part: Part | None = None,
    part_sweeps: Sequence[Sweep] = (),
) -> float:
    """The bound that hints prove, rounded up."""
    if not sweeps:
        raise ProofFailed("there are no multipliers to prove a bound from")
    with suited_to(max(network.sizes)):
        return _prove(network, region, sweeps, part, part_sweeps)


def _prove(
    network: Network, region: Region, sweeps: Sequence[Sweep], part: Part | None, part_sweeps: Sequence[Sweep]
) -> float:
    intervals: list[Interval] | None = None
    bound = np.inf
    for position, hints in enumerate(sweeps):
        last = position == len(sweeps) - 1 and not part_sweeps
        check = _Check(network, region, hints, intervals)
        value = check.run(needs_bound=last)
        intervals = check.intervals
        bound = min(bound, value)
    if part is not None and part_sweeps:
        start, stop = part.layers
        piece = network.slice(start, stop).select(part.inputs, part.outputs)
        for hints in part_sweeps:
            bound = _Check(piece, region, hints, (intervals or [])[start : stop - 1]).run(needs_bound=True)
    return float(bound)


@dataclass(eq=False)
class _Check:
    """One sweep, checked."""

    network: Network
    region: Region
    hints: Sweep
    known: list[Interval] | None
    intervals: list[Interval] = field(default_factory=list)
    relaxations: list[Relaxation] = field(default_factory=list)

    def run(self, needs_bound: bool) -> float:
        """Prove the intervals of all layers, and the bound if it is needed; otherwise return infinity."""
        hidden = self.network.layers[:-1]
        counts = {len(self.hints.multipliers), len(self.hints.exponents), len(self.hints.lines) or len(hidden)}
        if counts != {len(hidden)}:
            raise ProofFailed(f"the hints are for {len(self.hints.multipliers)} hidden layers, not {len(hidden)}")
        for index, layer in enumerate(hidden):
            arrays = (self.hints.multipliers[index], *(self.hints.lines[index] if self.hints.lines else ()))
            if any(np.shape(array) != (layer.size,) for array in arrays):
                raise ProofFailed(f"the hints of layer {index + 1} are not for its {layer.size} neurons")
        enclosures = self.hints.enclosures if self.region.bounded else ()
        local = any(isinstance(enclosure, Lipschitz) for enclosure in enclosures)
        linear = next((enclosure for enclosure in enclosures if isinstance(enclosure, Linear)), None)
        if linear is not None and len(self.hints.lines) != len(hidden):
            raise ProofFailed("the hints lack the slopes of the bounding lines")
        centers = trajectory(self.network, self.region.center) if local else []
        carry = local or needs_bound
        P: Array | None = None
        exponent = 0
        for index, layer in enumerate(hidden):
            assert layer.neurons is not None
            size = layer.size
            lower, upper = self.known[index] if self.known else (np.full(size, -np.inf), np.full(size, np.inf))
            if carry:
                S, exponent = _rescaled(congruence(P, layer.weight), exponent)
            if local:
                value, error = centers[index]
                reach = stretched(self.region.radius[..., None] * _axes(S, exponent) + error, 3)
                lower = np.maximum(lower, down(value - reach))
                upper = np.minimum(upper, up(value + reach))
            if linear is not None:
                lower, upper = self._trace(index, linear, lower, upper)
            if not (lower <= upper).all():
                raise ProofFailed(f"the intervals of layer {index + 1} are empty: the hints contradict themselves")
            self.intervals.append((lower, upper))
            if linear is not None:
                self.relaxations.append(relax(layer.neurons, lower, upper, *self.hints.lines[index]))
            if carry:
                alpha, beta = slope_bounds(layer.neurons, lower, upper)
                with np.errstate(over="ignore"):
                    hint = np.ldexp(self.hints.multipliers[index], 2 * (self.hints.exponents[index] - exponent))
                P = _activate(S, alpha, beta, hint)
        if not needs_bound:
            return np.inf
        S, exponent = _rescaled(congruence(P, self.network.layers[-1].weight), exponent)
        return float(np.ldexp(stretched(np.sqrt(largest_eigenvalue_above(S)), 2), exponent))

    def _trace(self, index: int, linear: Linear, lower: Array, upper: Array) -> Interval:
        """Back-substitution for the neurons whose slope is still open, every rounding error charged to the offset."""
        layer = self.network.layers[index]
        assert layer.neurons is not None
        alpha, beta = layer.neurons.slope_range(lower, upper)
        # where a later trace will close with this layer's values, all of them count
        closing = linear.depth is not None and index + linear.depth < self.network.depth - 1
        rows = np.arange(layer.size) if closing else np.flatnonzero(alpha < beta)
        if not rows.size:
            return lower, upper
        weight = dense(layer.weight[rows])
        above = self._above(index, linear.depth, np.concatenate([weight, -weight]))
        bias = layer.bias[rows]
        lower, upper = np.array(lower), np.array(upper)
        upper[rows] = np.minimum(upper[rows], up(above[: rows.size] + bias))
        lower[rows] = np.maximum(lower[rows], -up(above[rows.size :] - bias))
        return lower, upper

    def _above(self, index: int, depth: int | None, rows: Array) -> Array:
        """At least max over the region of rows·z, z the activations before layer ``index``.

        Replacing z by its lines turns rows into rows' = rows⁺·upper_slope + rows⁻·lower_slope, one rounding an entry;
        going through the affine map turns them into rows'·W, with error at most γ|rows'||W|. Both errors multiply
        values that are bounded, by v_size and z_size; so they are charged to the offset at the cost of a
        matrix-vector product.
        """
        stop = 0 if depth is None else max(0, index - depth)
        offset, charge = np.zeros(rows.shape[:-1]), np.zeros(rows.shape[:-1])
        for back in range(index - 1, stop - 1, -1):
            layer, lines = self.network.layers[back], self.relaxations[back]
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + positive @ lines.upper_offset + negative @ lines.lower_offset
            sizes = np.maximum(np.abs(lines.upper_offset), np.abs(lines.lower_offset))
            rows = positive * lines.upper_slope + negative * lines.lower_slope
            offset = offset + rows @ layer.bias
            below = self._below(back)
            g = gamma(max(layer.weight.shape) + 8)
            passed = spread(magnitude(layer.weight), below) + np.abs(layer.bias) + lines.v_size
            charge = charge + g * (np.abs(positive + negative) @ sizes + np.abs(rows) @ passed + np.abs(offset))
            rows = times(rows, layer.weight)
        charge = charge * UP * (1.0 + gamma(index + 1)) + TINY
        if stop == 0:
            value, error = support_above(self.region, rows)
        else:
            lines = self.relaxations[stop - 1]
            value = np.maximum(rows, 0.0) @ lines.roof + np.minimum(rows, 0.0) @ lines.floor
            error = gamma(rows.shape[-1] + 3) * (np.abs(rows) @ lines.z_size) * UP
        charge = charge + 4.0 * gamma(1) * (np.abs(offset) + np.abs(value) + error)
        return np.asarray(up(offset + value + (error + charge * UP)))

    def _below(self, index: int) -> Array:
        """At least |z| for the values that enter layer ``index``."""
        if index:
            return self.relaxations[index - 1].z_size
        return up(np.abs(self.region.center) + self.region.radius)


def _rescaled(S: Array, exponent: int) -> tuple[Array, int]:
    """S over a power of four that brings its mean diagonal near one; exact but for underflow, which is charged."""
    mean = float(np.trace(S)) / len(S)
    if not np.isfinite(mean):
        raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
    power = int(np.round(0.5 * np.log2(mean))) if mean > 0 else 0
    return raise_diagonal(np.ldexp(S, -2 * power), np.asarray(len(S) * TINY)), exponent + power


def _axes(S: Array, exponent: int) -> Array:
    """At least the Lipschitz constant of each neuron, sqrt(S_ll)."""
    return np.ldexp(stretched(np.sqrt(np.diagonal(S)), 2), exponent)


def _activate(S: Array, alpha: Array, beta: Array, hint: Array) -> Array:
    """P̂ with P ≼ P̂ after neurons with slopes in [α, β], for multipliers near the hint.

    Take floats m, g, h with [α, β] ⊂ [m - h/g, m + h/g], and T = 1/g². With C = I - D_h S D_h and M = D_h S D_m, any
    P for which

        [ C   M                    ]
        [ Mᵀ  P - T - D_m S D_m    ]  ≽ 0

    is valid. Let L and X be any floats with L Lᵀ ≈ C and L X ≈ M. Then the block matrix is [L; Xᵀ][L; Xᵀ]ᵀ + Δ, and
    raising its diagonal by the absolute row sums of Δ makes it positive semidefinite. On the rows of C that raises T,
    so P too. Δ consists of residuals that are computed and of rounding errors of products that are bounded.
    """
    m = 0.5 * (alpha + beta)
    r = np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)
    active = np.flatnonzero((r > 0) & (np.diagonal(S) > 0))
    size = np.abs(S)
    PP = m[:, None] * S * m
    error = 4.0 * gamma(1) * (np.abs(m) * apply(size, np.abs(m)))
    raised = np.zeros(len(S))
    if active.size:
        L, X, C, M, h, g = _factor(S, m, r, active, hint)
        n = active.size
        abs_L, abs_X = np.abs(L), np.abs(X)
        rounding = gamma(n + 6)
        left_L = abs_L.sum(axis=0)
        residual_C = np.abs(C - L @ L.T).sum(axis=1) + rounding * (apply(abs_L, left_L) + np.abs(C).sum(axis=1))
        residual_C = residual_C + 4.0 * gamma(1) * h * apply(size[np.ix_(active, active)], h)
        residual = np.abs(M - L @ X) + 4.0 * gamma(1) * np.abs(M)
        rows = residual.sum(axis=1) + rounding * (apply(abs_L, abs_X.sum(axis=1)) + np.abs(M).sum(axis=1))
        columns = residual.sum(axis=0) + rounding * (apply(abs_X.T, left_L) + np.abs(M).sum(axis=0))
        PP = PP + X.T @ X
        error = error + columns + rounding * (apply(abs_X.T, abs_X.sum(axis=1)))
        raised[active] = stretched((1.0 + (residual_C + rows) * UP) / (g * g), 6)
    error = (error + 4.0 * gamma(1) * np.abs(PP).sum(axis=1)) * UP + TINY
    return raise_diagonal(0.5 * (PP + PP.T), up(raised + error))


def _factor(
    S: Array, m: Array, r: Array, active: Array, hint: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """L, X, C, M, h, g of :func:`_activate`; multipliers are enlarged until C is positive definite."""
    part = S[np.ix_(active, active)]
    # a neuron without a hint hardly moves, or its slopes are apart by rounding only: since |S_ij| ≤ sqrt(S_ii S_jj),
    # a T in proportion to r·sqrt(S_jj) is feasible and keeps its share as small as r
    axes = np.sqrt(np.diagonal(S))
    share = r * axes
    fallback = share[active] * (np.linalg.norm(m * axes) + 2.0 * share.sum())
    T = np.where(hint[active] > 0, hint[active], fallback)
    growth = 2.0**-40
    for _ in range(80):
        if not np.isfinite(T).all():
            break
        g = 1.0 / np.sqrt(T)
        h = up(g * r[active])
        C = np.eye(active.size) - h[:, None] * part * h
        M = h[:, None] * S[active] * m
        try:
            L = np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            T, growth = (1.0 + growth) * T, min(4.0 * growth, 0.5)
            continue
        return L, linalg.solve_triangular(L, M, lower=True, check_finite=False), C, M, h, g
    raise ProofFailed("no multipliers near the hints make the step of a layer valid")
