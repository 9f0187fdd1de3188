"""The closed-form local bound as a function of a module's parameters, for a batch of balls.

For each ball, P_0 = I, and per layer, as in :class:`lipcert.ClosedForm`,

    S = W P Wᵀ,    [α, β] = slopes on v(x) ± ε·sqrt(S_ll),    m, r = (β + α)/2, (β - α)/2,
    P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T,    T = t on the neurons with r > 0,

and the bound is sqrt(λmax(S)) at the output. This is computed without gradients. What has gradients is one quadratic
form at a time, for a row a of the outputs, as vectors that go back through the layers:

    x = yW,    xPxᵀ = max over q of (xD_m + qD_r) S (xD_m + qD_r)ᵀ - qTqᵀ + xTxᵀ,

which is largest at q = xD_m S D_r (T - D_r S D_r)⁻¹.

By the envelope theorem q, the multipliers T and the direction a of λmax are constants for gradients, exactly for q and
a. Any T that is large enough is valid; were it the best one, the theorem would hold for it too.

All is plain floating point, nothing is proved here: certify what was trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lipcert.errors import InvalidInput
from lipcert.kernel.neuron_bounds import relax
from lipcert.model.activations import STRAIGHT
from lipcert.suggest.lines import suggested_lines
from lipcert.training.layers import Layers, layers_of

_POWERS = 4
"""Steps of the power method, for multipliers that need not be the best."""
_ABOVE = 1.05
"""What the power method may have missed."""
_SAME = 1e-6
"""A line touches φ at an end of an interval if it is so near there, relatively."""
_TRIES = 60
"""Doublings of a multiplier until it is feasible."""


@dataclass(frozen=True, eq=False)
class Step:
    """What one layer of activations does to quadratic forms, for each ball.

    Attributes
    ----------
    m, r : middles and radii of slopes, (batch, n), with gradients.
    t : multipliers, (batch,), of the neurons with r > 0.
    L, X : the Cholesky factor of t - D_r S D_r on the open neurons, and L⁻¹ D_r S D_m; none where no slope is open.
    active : the open neurons, (batch, a), and others where a ball has fewer.
    """

    m: torch.Tensor
    r: torch.Tensor
    t: torch.Tensor
    L: torch.Tensor
    X: torch.Tensor
    active: torch.Tensor

    def back(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For rows x (batch, k, n): rows y with xPxᵀ = y S yᵀ + rest, and the rest, (batch, k)."""
        with torch.no_grad():
            inner = torch.linalg.solve_triangular(self.L.mT, self.X @ x.mT, upper=True).mT
            q = torch.zeros_like(x).scatter(2, self.active[:, None, :].expand(-1, x.shape[1], -1), inner)
        T = torch.where(self.r > 0, self.t[:, None], 0.0 * self.r).detach()[:, None, :]
        return x * self.m[:, None, :] + q * self.r[:, None, :], (T * (x * x - q * q)).sum(dim=2)


class Bounds:
    """What the layers of a module say of balls around points, as functions of the parameters.

    Attributes
    ----------
    outputs : f(x), (batch, outputs).
    S : the ellipsoid of the outputs over each ball, (batch, outputs, outputs), without gradients.
    """

    def __init__(self, layers: Layers, x: torch.Tensor, radius: torch.Tensor, *, relaxation: bool, exact: bool) -> None:
        self.layers, self.weights, self.neurons = layers, layers.weights, layers.cut.neurons
        self.radius, self.exact = radius, exact
        self.first = self.weights[0] @ self.weights[0].T
        self.relaxation = BackSubstitution(self, x) if relaxation else None
        self.steps: list[Step] = []
        z, S = x.flatten(1), self.first.detach().expand(len(x), -1, -1)
        for index in range(len(self.weights)):
            v = layers.affine(index, z)
            if index < len(self.neurons):
                low, high = self._interval(index, v, S)
                alpha, beta = self._slopes(index, low, high)
                if self.relaxation is not None:
                    self.relaxation.settle(index, low, high, alpha, beta)
                S = self._step(S, alpha, beta, self.weights[index + 1].detach())
                z = layers.activate(index, v)
        self.outputs, self.S = v, S

    def forms(self, index: int, rows: torch.Tensor) -> torch.Tensor:
        """The quadratic forms a S aᵀ of rows (batch, k, neurons) of a layer, (batch, k), with gradients."""
        total: torch.Tensor = torch.zeros((), dtype=rows.dtype, device=rows.device)
        for step, weight in zip(self.steps[:index][::-1], self.weights[1 : index + 1][::-1], strict=True):
            rows, rest = step.back(rows @ weight)
            total = total + rest
        return total + ((rows @ self.first) * rows).sum(dim=2)

    def pairwise(self, labels: torch.Tensor) -> torch.Tensor:
        """Bounds of f_label - f_j, (batch, outputs)."""
        eye = torch.eye(self.outputs.shape[1]).to(self.outputs)
        return root(self.forms(self.last, eye[labels][:, None, :] - eye))

    @property
    def last(self) -> int:
        return len(self.steps)

    def _interval(self, index: int, v: torch.Tensor, S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the pre-activations lie: by the ellipsoid, and by back-substitution.

        With gradients where slopes change with the interval.
        """
        squares = torch.diagonal(S, dim1=1, dim2=2)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._straight(index)):
            if torch.is_grad_enabled():
                squares = self.forms(index, torch.eye(v.shape[1]).to(v).expand(len(v), -1, -1))
            reach = self.radius[:, None] * root(squares)
            low, high = v - reach, v + reach
            if self.relaxation is not None and index:
                lower, upper = self.relaxation.interval(index)
                low, high = torch.maximum(low, lower), torch.minimum(high, upper)
            return torch.minimum(low, high), high

    def _straight(self, index: int) -> bool:
        """Whether all activations of a layer are piecewise linear."""
        return all(bool(np.all(np.equal(row.shape, STRAIGHT))) for row, _ in self.neurons[index].groups)

    def _slopes(self, index: int, low: torch.Tensor, high: torch.Tensor) -> list[torch.Tensor]:
        """α and β from the table; where one is φ' at an end of the interval, its derivative is that of φ'."""
        neurons, ends = self.neurons[index], [numbers(end) for end in (low, high)]
        slopes = [torch.as_tensor(one).to(low) for one in neurons.slope_range(*ends)]
        if self._straight(index) or not torch.is_grad_enabled():
            return slopes
        for end, number, side in zip((low, high), ends, (1, -1), strict=True):
            here, move = torch.as_tensor(neurons.slope(number, side)).to(low), self._derivative(index, end)
            slopes = [one + torch.where(one.detach() == here, move - move.detach(), 0.0 * move) for one in slopes]
        return slopes

    def _derivative(self, index: int, v: torch.Tensor) -> torch.Tensor:
        """φ'(v), differentiable."""
        if not v.requires_grad:
            return torch.zeros_like(v)
        return torch.autograd.grad(self.layers.activate(index, v).sum(), v, create_graph=True)[0]

    def _step(self, S: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, ahead: torch.Tensor) -> torch.Tensor:
        """The ellipsoid W⁺PW⁺ᵀ behind the activations and the next weight; the step is kept for gradients."""
        middle, radius = 0.5 * (beta + alpha), 0.5 * (beta - alpha)
        with torch.no_grad():
            m, r = middle.detach(), radius.detach()
            active = torch.topk((r > 0).to(r.dtype), max(int((r > 0).sum(dim=1).max()), 1), dim=1).indices
            on = torch.gather(r, 1, active)
            rows = on[:, :, None] * torch.gather(S, 1, active[:, :, None].expand(-1, -1, S.shape[-1]))
            R = torch.gather(rows, 2, active[:, None, :].expand(-1, active.shape[1], -1)) * on[:, None, :]
            head = ahead * m[:, None, :]  # (batch, next, n)
            direct = (head @ S) @ head.mT
            t = closed_form(direct, R, ahead, active, on, self.exact)
            t, L = _feasible(R, t)
            X = torch.linalg.solve_triangular(L, rows * m[:, None, :], upper=False)
            Y = X @ ahead.T
            beside = ahead.T[active] * root(torch.where(on > 0, t[:, None], 0.0 * on))[:, :, None]
            self.steps.append(Step(middle, radius, t, L, X, active))
            return direct + Y.mT @ Y + beside.mT @ beside


def _feasible(R: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The multipliers, enlarged until t - R is positive definite, and its Cholesky factor."""
    eye = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device)
    for _ in range(_TRIES):
        factor, info = torch.linalg.cholesky_ex(t[:, None, None] * eye - R)
        if not info.any():
            return t, factor
        t = torch.where(info > 0, 2.0 * t, t)
    raise InvalidInput("the bound of a layer is not finite: its weights are too large, or not numbers")


def closed_form(
    direct: torch.Tensor, R: torch.Tensor, ahead: torch.Tensor, active: torch.Tensor, on: torch.Tensor, exact: bool
) -> torch.Tensor:
    """T = s + sqrt(sσ/e), (batch,), see :class:`lipcert.ClosedForm`; one where nothing is open."""
    heads = ahead.T[active] * (on > 0)[:, :, None]  # (batch, a, next)
    E = heads @ heads.mT if heads.shape[1] <= heads.shape[2] else heads.mT @ heads
    of = largest if exact else powers
    s, sigma, e = of(R), of(direct), of(E)
    t = torch.maximum(s + torch.sqrt(s * sigma / e.clamp_min(1e-30)), s * (1.0 + 1e-6))
    return torch.where(s > 0, t, torch.ones_like(t))


def largest(stack: torch.Tensor) -> torch.Tensor:
    """λmax of each positive semidefinite matrix."""
    return torch.linalg.eigvalsh(0.5 * (stack + stack.mT))[:, -1].clamp_min(0.0)


def powers(stack: torch.Tensor) -> torch.Tensor:
    """About the same, by a few steps of the power method."""
    y = 1.0 + 0.5 * torch.cos(torch.arange(stack.shape[-1], dtype=stack.dtype, device=stack.device) + 1.0)
    y = y[None, :, None].expand(len(stack), -1, -1)
    for _ in range(_POWERS):
        y = stack @ (y / torch.linalg.vector_norm(y, dim=1, keepdim=True).clamp_min(1e-30))
    return _ABOVE * torch.linalg.vector_norm(y, dim=1)[:, 0]


def root(squares: torch.Tensor) -> torch.Tensor:
    """The square root, with derivative zero at zero."""
    positive = squares > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, squares, torch.ones_like(squares))), 0.0 * squares)


def numbers(values: torch.Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


class BackSubstitution:
    """Intervals by linear relaxation: each activation between two lines, followed back to the input."""

    def __init__(self, bounds: Bounds, x: torch.Tensor) -> None:
        self.bounds, self.x = bounds, x.flatten(1)
        self.biases = [bounds.layers.bias(index) for index in range(len(bounds.weights))]
        self.lines: list[tuple[torch.Tensor, ...]] = []

    def settle(
        self, index: int, low: torch.Tensor, high: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor
    ) -> None:
        """Lines of a layer: φ itself where its slope is known, else those of least area, which are constants."""
        neurons, ends = self.bounds.neurons[index], (numbers(low), numbers(high))
        slopes = suggested_lines(neurons, ends)
        _, lower, _, upper, *_ = relax(neurons, *ends, *slopes)
        at_low = self.bounds.layers.activate(index, low.detach())
        known, exact = alpha == beta, at_low - alpha * low.detach()
        found = []
        for slope, offset in zip(slopes, (lower, upper), strict=True):
            drawn, shift = torch.as_tensor(slope).to(low), torch.as_tensor(offset).to(low)
            found += [torch.where(known, alpha, drawn), torch.where(known, exact, shift)]
        self.lines.append(tuple(found))

    def interval(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the pre-activations of a layer lie."""
        weight, bias = self.bounds.weights[index], self.biases[index]
        rows = torch.cat([weight, -weight]).expand(len(self.x), -1, -1)
        offset = torch.cat([bias, -bias]).expand(len(self.x), -1)
        for back in range(index - 1, -1, -1):
            lower_slope, lower, upper_slope, upper = (line[:, None, :] for line in self.lines[back])
            up, down = rows.clamp(min=0), rows.clamp(max=0)
            offset = offset + (up * upper + down * lower).sum(dim=2)
            rows = up * upper_slope + down * lower_slope
            offset = offset + rows @ self.biases[back]
            rows = rows @ self.bounds.weights[back]
        at_center = (rows @ self.x[:, :, None])[:, :, 0]
        top = offset + at_center + self.bounds.radius[:, None] * root((rows * rows).sum(dim=2))
        above, below = top.split(len(bias), dim=1)
        return -below, above


def local_bound(
    module: torch.nn.Module,
    x: torch.Tensor,
    radius: float | torch.Tensor,
    *,
    margins: bool | torch.Tensor = False,
    relaxation: bool = True,
    exact: bool = True,
) -> torch.Tensor:
    """The bound of ``certify(net, Ball(x, radius), ClosedForm())`` for each point, differentiable in the parameters.

    Nothing is proved: the numbers are those of :func:`lipcert.certify` up to floating point.

    Parameters
    ----------
    module
        Affine operations and activations, in evaluation mode, as for :func:`lipcert.load`; its own mode is kept.
    x
        The points, (batch, ...), on the device and in the precision of the module.
    radius
        Radius of the ℓ2 balls: a number, or (batch,).
    margins
        True: bounds of f_label - f_j for each class j, the label being the predicted class. Labels (batch,): theirs.
    relaxation
        Whether back-substitution tightens the intervals of the neurons. It takes longer than the bound itself.
    exact
        False: multipliers from a few steps of the power method. The bound is valid all the same, and the step faster.

    Returns
    -------
    (batch,), or with ``margins`` (batch, outputs), zero at the label.
    """
    if not isinstance(x, torch.Tensor) or x.ndim < 2:
        raise InvalidInput(f"x must be a tensor (batch, ...), got {getattr(x, 'shape', type(x).__name__)}")
    radii = torch.as_tensor(radius, dtype=x.dtype, device=x.device).expand(len(x))
    if not bool((radii >= 0).all()):
        raise InvalidInput(f"radius must be at least 0, got {radius}")
    found = Bounds(layers_of(module, x), x, radii, relaxation=relaxation, exact=exact)
    if margins is False:
        top = torch.linalg.eigh(0.5 * (found.S + found.S.mT))[1][:, None, :, -1]
        return root(found.forms(found.last, top)[:, 0])
    if margins is True:
        return found.pairwise(found.outputs.argmax(dim=1))
    classes = found.outputs.shape[1]
    if margins.shape != (len(x),) or not bool(((margins >= 0) & (margins < classes)).all()):
        raise InvalidInput(f"margins must be one label from 0 to {classes - 1} for each of {len(x)} points")
    return found.pairwise(margins)
