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

Losses take a quicker bound without inverses: with T = s + τ, s = λmax(D_r S D_r), the inverse is at most 1/τ, so

    xPxᵀ ≤ xD_m S D_m xᵀ + ‖xD_m S D_r‖²/τ + (s + τ)‖x‖² on the neurons with r > 0,

for each x with the τ that is best for it. That is a few products with matrices which all balls share; s is estimated.

All is plain floating point, nothing is proved here: certify what was trained.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch

from lipcert.errors import InvalidInput
from lipcert.kernel.neuron_bounds import relax
from lipcert.model.activations import STRAIGHT
from lipcert.suggest.lines import suggested_lines
from lipcert.training.layers import Layers, layers_of

_POWERS = 5
"""Steps of the power method. The quick bound is then 0.5 % below the one with λmax on average, and at most 10 %."""
_ABOVE = 1.05
"""What the power method may have missed."""
_ROWS = 8
"""About so many rows of a layer have a say in its τ."""
_CACHED = 200_000
"""Numbers in the rows that are treated at once, so that they stay in the cache."""


@dataclass(frozen=True, eq=False)
class Step:
    """What one layer of activations, and the weight behind it, do to quadratic forms, for each ball.

    Attributes
    ----------
    weight : (next, n), with gradients.
    m, r : middles and radii of slopes, (batch, 1, n), with gradients.
    s : λmax(D_r S D_r), (batch, 1, 1); with gradients if ``spectrum`` is None.
    t : the multiplier of the open neurons, or τ.
    spectrum : eigenvalues (batch, 1, n) and eigenvectors of D_r S D_r; None if (t - D_r S D_r)⁻¹ is bounded by 1/τ.
    """

    weight: torch.Tensor
    m: torch.Tensor
    r: torch.Tensor
    s: torch.Tensor
    t: torch.Tensor
    spectrum: tuple[torch.Tensor, torch.Tensor] | None = None


class Bounds:
    """What the layers of a module say of balls around points, as functions of the parameters.

    Attributes
    ----------
    outputs : f(x), (batch, outputs).
    exact : whether inverses and largest eigenvalues are computed, or inverses bounded and eigenvalues estimated.
    S : if exact, the ellipsoids of all layers, (batch, neurons, neurons), without gradients.
    """

    def __init__(self, layers: Layers, x: torch.Tensor, radius: torch.Tensor, *, relaxation: bool, exact: bool) -> None:
        self.layers, self.weights, self.neurons = layers, layers.weights, layers.cut.neurons
        self.radius, self.exact = radius, exact
        self.first = self.weights[0] @ self.weights[0].T
        self.relaxation = BackSubstitution(self, x) if relaxation else None
        self.steps: list[Step] = []
        self.S = [self.first.detach().expand(len(x), -1, -1)]
        z = x.flatten(1)
        for index in range(len(self.weights)):
            v = layers.affine(index, z)
            if index < len(self.neurons):
                low, high = self._interval(index, v)
                alpha, beta = self._slopes(index, low, high)
                if self.relaxation is not None:
                    self.relaxation.settle(index, low, high, alpha, beta)
                m, r = (0.5 * part[:, None, :] for part in (beta + alpha, beta - alpha))
                self.steps.append((self._exact if exact else self._quick)(index, self.weights[index + 1], m, r))
                z = layers.activate(index, v)
        self.outputs = v

    def forms(self, index: int, rows: torch.Tensor, *, own: bool = False) -> torch.Tensor:
        """The quadratic forms a S aᵀ of rows (batch, k, neurons) of a layer, (batch, k), with gradients.

        With ``own`` each row has its own multiplier in the last step, as if it were the only output.
        """
        if index == 0:
            return ((rows @ self.first) * rows).sum(dim=2)
        return self._forms(index, rows @ self.weights[index], own=own)

    def _forms(self, index: int, x: torch.Tensor, *, own: bool = False) -> torch.Tensor:
        """The same for x = rows·W of a hidden layer."""
        step = self.steps[index - 1]
        z, open_ = x * step.m, (step.r > 0).to(x.dtype)
        square = (x * x * open_).sum(dim=2)
        if step.spectrum is None:  # with the τ that is best for each row
            y = self.times(index - 1, z)
            beside = root(square * (y * step.r).square().sum(dim=2))
            return (y * z).sum(dim=2) + step.s[:, 0] * square + 2.0 * beside
        with torch.no_grad():
            y, (values, vectors) = z @ self.S[index - 1], step.spectrum
            t = closed_form(step.s, (y * z).sum(dim=2)[:, :, None], square[:, :, None]) if own else step.t
            q = (y * step.r @ vectors / (t - values)) @ vectors.mT * open_
        return self.forms(index - 1, z + q * step.r) + t[:, :, 0] * square - (t * q * q).sum(dim=2)

    def pairwise(self, labels: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
        """Bounds of f_label - f_j, (batch, outputs), or for the other classes (batch, k) only."""
        eye = torch.eye(self.outputs.shape[1]).to(self.outputs)
        rows = eye[labels][:, None, :] - (eye if others is None else eye[others])
        return root(self.forms(self.last, rows, own=True))

    @property
    def last(self) -> int:
        return len(self.steps)

    def _interval(self, index: int, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the pre-activations lie: by the ellipsoid, and by back-substitution.

        With gradients where slopes change with the interval.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._straight(index)):
            if self.exact and not torch.is_grad_enabled():
                squares = torch.diagonal(self.S[index], dim1=1, dim2=2)
            else:
                squares = self._squares(index, v)
            reach = self.radius[:, None] * root(squares)
            low, high = v - reach, v + reach
            if self.relaxation is not None and index:
                lower, upper = self.relaxation.interval(index)
                low, high = torch.maximum(low, lower), torch.minimum(high, upper)
            return torch.minimum(low, high), high

    def _squares(self, index: int, v: torch.Tensor) -> torch.Tensor:
        """The diagonals of the ellipsoids, (batch, neurons); for straight activations only where a product of norms
        does not tell the slopes, which is that product elsewhere.
        """
        if index == 0:
            return torch.diagonal(self.first).expand_as(v)
        if self.exact or not self._straight(index):
            eye, count = torch.eye(v.shape[1]).to(v)[None], max(_CACHED // v.numel(), 1)
            return torch.cat([self.forms(index, rows) for rows in eye.split(count, dim=1)], dim=1)
        weight = self.weights[index]
        squares = self._most(index) * weight.square().sum(dim=1).expand_as(v)
        reach = self.radius[:, None] * torch.sqrt(squares)
        alpha, beta = self._slopes(index, v - reach, v + reach)
        for images, neurons in (part.T for part in (alpha < beta).nonzero().split(max(_CACHED // v.shape[1], 1))):
            found = self._at(images)._forms(index, weight[neurons][:, None])[:, 0]
            squares = squares.index_put((images, neurons), found)
        return squares

    def _most(self, index: int) -> float:
        """What ‖∂z/∂x‖² of the activations before a layer is at most, anywhere."""
        grams = [self.first, *(weight @ weight.T for weight in self.weights[1:index])]
        steepest = [max(float(np.abs(end).max()) for end in neurons.everywhere) for neurons in self.neurons[:index]]
        return math.prod(float(largest(gram)) * slope**2 for gram, slope in zip(grams, steepest, strict=True))

    def _at(self, images: torch.Tensor) -> Bounds:
        """The same for some images, in any order."""
        some = copy(self)
        some.steps = [
            replace(step, **{name: getattr(step, name)[images] for name in ("m", "r", "s", "t")}) for step in self.steps
        ]
        return some

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

    @torch.no_grad()
    def _exact(self, index: int, weight: torch.Tensor, m: torch.Tensor, r: torch.Tensor) -> Step:
        """The step with the closed-form multiplier; S behind it is kept."""
        S, head = self.S[index], weight * m  # (batch, next, n)
        G, open_ = head @ S, weight * (r > 0)
        direct = G @ head.mT
        if not bool(torch.isfinite(direct).all()):
            raise InvalidInput("the bound of a layer is not finite: its weights are too large, or not numbers")
        values, vectors = (part.to(S) for part in torch.linalg.eigh(_even(S * r * r.mT)))
        values = values[:, None, :].clamp_min(0.0)
        s, *ends = (
            values[:, :, -1:],
            *(torch.linalg.eigvalsh(_even(one))[:, -1:, None] for one in (direct, open_ @ open_.mT)),
        )
        t = closed_form(s, *(end.clamp_min(0.0).to(S) for end in ends))
        half = (G * r) @ vectors
        self.S.append(direct + (half / (t - values)) @ half.mT + (open_ * t) @ weight.T)
        return Step(weight, m, r, s, t, (values, vectors))

    def _quick(self, index: int, weight: torch.Tensor, m: torch.Tensor, r: torch.Tensor) -> Step:
        """The step with (T - D_r S D_r)⁻¹ ≼ 1/τ at T = s + τ, s = λmax(D_r S D_r): products of matrices alone."""
        top, tau = directions(self, index, weight.detach(), m.detach(), r.detach())
        return Step(weight, m, r, _ABOVE * self.forms(index, top * r)[:, :, None], tau)

    def times(self, index: int, rows: torch.Tensor) -> torch.Tensor:
        """The products rows·S, where inverses are bounded by numbers."""
        if index == 0:
            return rows @ self.first
        step = self.steps[index - 1]
        x = rows @ step.weight
        y = self.times(index - 1, x * step.m)
        y = y + self.times(index - 1, y * (step.r * step.r / step.t))
        return (y * step.m + torch.where(step.r > 0, step.s + step.t, 0.0 * step.r) * x) @ step.weight.T


@torch.no_grad()
def directions(
    bounds: Bounds, index: int, weight: torch.Tensor, m: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """About the first eigenvector of D_r S D_r, (batch, 1, n), by the power method, and τ, (batch, 1, 1).

    A row a of the next layer has its own best τ = c/e, c = ‖a W D_m S D_r‖, e = ‖a W‖ on the open neurons. The layers
    behind need one for all rows: sqrt(Σc²/Σe²) over some of them; the last layer has none behind.
    """
    top = 1.0 + 0.5 * torch.cos(torch.arange(weight.shape[1], dtype=weight.dtype, device=weight.device) + 1.0)
    for _ in range(_POWERS):
        top = bounds.times(index, top * r) * r
        top = top / torch.linalg.vector_norm(top, dim=2, keepdim=True).clamp_min(1e-30)
    if index + 2 == len(bounds.weights):
        return top, torch.ones_like(top[:, :, :1])
    x = weight[None, :: max(len(weight) // _ROWS, 1)]
    both = bounds.times(index, x * m) * r, x * (r > 0)
    c, e = (torch.linalg.vector_norm(one, dim=(1, 2), keepdim=True) for one in both)
    return top, (c / e).nan_to_num(1.0).clamp_min(1e-30)


def closed_form(s: torch.Tensor, sigma: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    """T = s + sqrt(sσ/e), see :class:`lipcert.ClosedForm`; one where nothing is open."""
    t = torch.maximum(s + torch.sqrt(s * sigma / e.clamp_min(1e-30)), s * (1.0 + 1e-6))
    return torch.where(s > 0, t, torch.ones_like(t))


def largest(gram: torch.Tensor) -> torch.Tensor:
    """λmax of A ≽ 0, or a little more: ‖A¹⁶‖^(1/16) in the norm of Frobenius."""
    scale = torch.linalg.matrix_norm(gram).clamp_min(1e-30)
    power = gram / scale
    for _ in range(4):
        power = power @ power
    return scale * torch.linalg.matrix_norm(power) ** (1 / 16)


def _even(stack: torch.Tensor) -> torch.Tensor:
    """Symmetric, and in double precision: in single, LAPACK gives up on eigenvalues of some matrices of low rank."""
    return (0.5 * (stack + stack.mT)).double()


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

    Returns
    -------
    (batch,), or with ``margins`` (batch, outputs), zero at the label.
    """
    if not isinstance(x, torch.Tensor) or x.ndim < 2:
        raise InvalidInput(f"x must be a tensor (batch, ...), got {getattr(x, 'shape', type(x).__name__)}")
    radii = torch.as_tensor(radius, dtype=x.dtype, device=x.device).expand(len(x))
    if not bool((radii >= 0).all()):
        raise InvalidInput(f"radius must be at least 0, got {radius}")
    found = Bounds(layers_of(module, x), x, radii, relaxation=relaxation, exact=True)
    if margins is False:
        top = torch.linalg.eigh(_even(found.S[-1]))[1][:, None, :, -1].to(x)
        return root(found.forms(found.last, top)[:, 0])
    if margins is True:
        return found.pairwise(found.outputs.argmax(dim=1))
    classes = found.outputs.shape[1]
    if margins.shape != (len(x),) or not bool(((margins >= 0) & (margins < classes)).all()):
        raise InvalidInput(f"margins must be one label from 0 to {classes - 1} for each of {len(x)} points")
    return found.pairwise(margins)
