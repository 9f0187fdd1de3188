"""Entries of the Jacobian W_N D_{N-1} … D_1 W_1, for every choice of slopes within their ranges."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb, arb_mat

from lipcert.exact.ellipsoid import Slopes, feasible, halved, solve
from lipcert.exact.functions import least, most
from lipcert.exact.linear import at_least, image, largest_eigenvalue, norm, plus_diagonal, scaled, signs
from lipcert.exact.model import Model

_TAU = arb(2) ** -52
"""Weight of rounding errors in E, whose size is about one."""
Group = tuple[int, ...]
Matrix = list[list[arb]]


class Products:
    """Interval arithmetic on the product, from both ends; weights are split by signs once."""

    def __init__(self, model: Model) -> None:
        weights = [layer.weight for layer in model]
        self._ways = [self._split(weights), self._split([weight.transpose() for weight in weights[::-1]])]

    @staticmethod
    def _split(weights: Sequence[arb_mat]) -> tuple[arb_mat, list[tuple[arb_mat, arb_mat, arb_mat]]]:
        middles = [weight.mid() for weight in weights[1:]]
        return weights[0], [(*signs(mid), weight - mid) for mid, weight in zip(middles, weights[1:], strict=True)]

    def sizes(self, slopes: Sequence[Slopes]) -> Matrix:
        """At least the size of every entry, a row per output."""
        forth = self._sizes(*self._ways[0], slopes)
        back = self._sizes(*self._ways[1], slopes[::-1])
        return [[least([x, back[k][i]]) for k, x in enumerate(row)] for i, row in enumerate(forth)]

    @staticmethod
    def _sizes(first: arb_mat, others: Sequence[tuple[arb_mat, arb_mat, arb_mat]], slopes: Sequence[Slopes]) -> Matrix:
        """Each entry is within [low, high]; a slope multiplies a row, a weight adds up rows by its signs."""
        low = [[x.lower() for x in row] for row in first.tolist()]
        high = [[x.upper() for x in row] for row in first.tolist()]
        for (positive, negative, rest), (alpha, beta) in zip(others, slopes, strict=True):
            for k, (a, b) in enumerate(zip(alpha, beta, strict=True)):
                pairs = [_times(x, y, a, b) for x, y in zip(low[k], high[k], strict=True)]
                low[k], high[k] = [x for x, _ in pairs], [y for _, y in pairs]
            wide = arb_mat([[x.union(y) for x, y in zip(*rows, strict=True)] for rows in zip(low, high, strict=True)])
            ends, lost = (arb_mat(low), arb_mat(high)), rest * wide
            below, above = (positive * ends[k] + negative * ends[1 - k] + lost for k in (0, 1))
            low = [[x.lower() for x in row] for row in below.tolist()]
            high = [[x.upper() for x in row] for row in above.tolist()]
        return [
            [most([abs(x).upper(), abs(y).upper()]) for x, y in zip(*rows, strict=True)]
            for rows in zip(low, high, strict=True)
        ]


def _times(low: arb, high: arb, alpha: arb, beta: arb) -> tuple[arb, arb]:
    """Where x·s lies for low ≤ x ≤ high and alpha ≤ s ≤ beta."""
    corners = [x * s for x in (low, high) for s in (alpha, beta)]
    return least([x.lower() for x in corners]), most([x.upper() for x in corners])


class Entries:
    """The product as U + Δ with |pᵀ Δ x|² ≤ (pᵀ A p)(xᵀ E x) for all p and x: E only for groups of inputs.

    Say that Δv is near u if |pᵀΔv| ≤ |pᵀu| + sqrt(ε pᵀAp) for all p. With C = T - D_r A D_r positive definite,
    C z = D_r u and d = D_m (u + A D_r z), the step leaves D Δv near d, for P in the place of A and ε + zᵀCz in that of
    ε: u is U x, and zᵀCz = xᵀ(D_r U)ᵀC⁻¹(D_r U)x adds to E. If U is known up to F with rows of norm φ, nearness stays
    true with A + n·diag(φ²)/τ and E + τ.
    """

    def __init__(
        self, model: Model, slopes: Sequence[Slopes], hints: Sequence[Sequence[arb]], groups: Sequence[Group]
    ) -> None:
        n = model[0].size
        self.groups = groups
        self.U, self.A = model[0].weight, arb_mat(n, n)
        self.E = [arb_mat(len(group), len(group)) for group in groups]
        self._settle()
        for layer, ranges, hint in zip(model[1:], slopes, hints, strict=True):
            self._activate(ranges, hint)
            self.U, self.A = layer.weight * self.U, image(layer.weight, self.A)
            self._settle()

    def block(self, rows: Group, place: int) -> arb:
        """At least the norm of a block: ‖U‖ + sqrt(λmax(A) λmax(E)) there."""
        columns, U, A = self.groups[place], self.U.tolist(), self.A.tolist()
        part = arb_mat([[U[i][k] for k in columns] for i in rows])
        if part.nrows() > part.ncols():
            part = part.transpose()
        spread = largest_eigenvalue(arb_mat([[A[i][j] for j in rows] for i in rows]))
        energy = largest_eigenvalue(at_least(self.E[place]))
        return (largest_eigenvalue(image(part, None)).sqrt() + (spread * energy).sqrt()).upper()

    def _settle(self) -> None:
        """U without radii; they go to A and E."""
        lost = [norm([x.rad().upper() for x in row]) for row in self.U.tolist()]
        self.U = self.U.mid()
        if all(x.is_zero() for x in lost):
            return
        n = len(lost)
        self.A = at_least(plus_diagonal(self.A, [n * x * x / _TAU for x in lost]))
        self.E = [plus_diagonal(E, [_TAU] * E.nrows()) for E in self.E]

    def _activate(self, slopes: Slopes, hint: Sequence[arb]) -> None:
        m, r = halved(slopes)
        n, A, U = len(m), self.A.tolist(), self.U.tolist()
        sizes = [norm(row) + A[k][k].sqrt().upper() for k, row in enumerate(U)]
        active = [k for k in range(n) if r[k] > 0 and sizes[k] > 0]
        P = scaled(self.A, m, m)
        if active:
            radii = [r[k] for k in active]
            inner = scaled(arb_mat([[A[i][j] for j in active] for i in active]), radii, radii)
            total = 2 * sum((r[k] * sizes[k] for k in active), arb(0))
            safe = [(r[k] * sizes[k] * total).mid() for k in active]
            T = feasible(inner, safe, [hint[k] for k in active])
            side = scaled(arb_mat([A[k] for k in active]), radii)  # D_r A
            turned = scaled(arb_mat([U[k] for k in active]), radii)  # D_r U
            solved = solve(inner, T, arb_mat([a + b for a, b in zip(side.tolist(), turned.tolist())]))
            across = arb_mat([row[:n] for row in solved.tolist()])
            z = arb_mat([row[n:] for row in solved.tolist()])
            P = P + scaled(side.transpose() * across, m, m)
            raised = dict(zip(active, T, strict=True))
            P = plus_diagonal(P, [raised.get(k, arb(0)) for k in range(n)])
            for place, group in enumerate(self.groups):
                left, right = (arb_mat([[row[k] for k in group] for row in x.tolist()]) for x in (z, turned))
                self.E[place] = at_least(self.E[place] + left.transpose() * right)
            self.U = self.U + side.transpose() * z
        self.U, self.A = scaled(self.U, m), at_least(P)
