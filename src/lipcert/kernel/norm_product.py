"""The product of norms: a bound for all inputs that any network of finite slopes has, whatever its size.

Δu is what two inputs at distance one differ by at some layer, Δv = W Δu, and Δz_i = s_i Δv_i for a slope s_i of the
neuron. So ‖Δz‖ ≤ max|s|·‖W‖·‖Δu‖. Taken layer by layer this loses much where values are carried past a layer, as skips
and max pools do. Two things are looked at for that.

*Groups.* Neurons that carry a value, and those that change it, are bounded apart: ‖Δu_h‖ ≤ Σ_g ‖W_hg‖·‖Δu_g‖. So a
residual block x + C(B x) counts 1 + ‖C‖‖B‖. Or all groups together, ‖Δu‖ ≤ ‖W‖·‖Δu_before‖, where that is less, as for
rotations.

*Pairs.* max(a, b) = b + relu(a - b) is a neuron that carries b, and one that changes a - b; what follows sees their
sum only, so its weight has the same column for both. Then W = W'M with M adding them up, W' some columns of W, and
u = Mz is what is bounded. A row of u is (r + s r')·Δu for the rows r, r' of the two and a slope s. Its norm is largest
where s is at an end of its range: for a maximum it is 1. For any rows r_i, each zero outside of some columns,

    ‖Wx‖² = Σ_i (r_i·x)² ≤ max_j Σ_{i sees j} ‖r_i‖² · ‖x‖².

*Norms* of matrices are roots of λmax(WWᵀ), or of the largest row sum of |W| times the largest column sum. A convolution
has the norms of its symbols (:mod:`lipcert.kernel.fourier`), the largest over the frequencies. With R the kernel as one
matrix, Σ_y ‖R x_y‖² ≤ ‖R‖² Σ_y ‖x_y‖² for what the windows see, and an entry of an image that is not circular is in
span // stride + 1 windows at most, axis by axis: in one where windows do not overlap.

Weights are known to some units only: that W is off by E adds at most ‖E‖‖Δz‖, which is ``lost``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Size, congruence, largest_eigenvalue_above, norm_above
from lipcert.kernel.fourier import convolution_norm, full_kernel
from lipcert.kernel.neuron_bounds import all_slopes
from lipcert.kernel.sweep import check_weights
from lipcert.model.arrays import Array, Weight
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from lipcert.suggest.multipliers import largest_eigenvalue

_SMALL = 1024
"""Rows or columns up to which the product of a matrix with its transpose is formed."""
_MOST = 2**25
"""Entries of a convolution up to which its matrix is made."""
_HARD = 7e9
"""Places times channels cubed up to which a convolution's frequencies are gone through, in six seconds at most."""

Linear: TypeAlias = "Weight | Convolution"
Group: TypeAlias = Array
"""Some entries of u: neurons, (count, 1), or pairs that carry and change, (count, 2). The first has their column."""

_known: WeakKeyDictionary[Network, float] = WeakKeyDictionary()


def norm_product(network: Network) -> float:
    """At least the Lipschitz constant of a network over all inputs, in ℓ2 norms; seconds and little memory."""
    if network.coupled:
        raise ProofFailed("the product of norms knows no products of signals and no softmax")
    check_weights(network, kernels=True)
    if network not in _known:
        with np.errstate(all="ignore"):
            before, lost = _walked(network)
            found = float((before.through(network.layers[-1].linear, _norm) + lost).above)
        if not np.isfinite(found):
            raise ProofFailed("the product of norms is too large for floating point; slopes may grow without end")
        _known[network] = found
    return _known[network]


@dataclass(frozen=True, eq=False)
class _Difference:
    """Δu: ‖Δu‖ of each group is at most a part, and of all at most ``whole``."""

    groups: list[Group]
    parts: list[Size]
    whole: Size

    def seen(self, linear: Linear) -> Linear:
        """W', the columns of W that Δu meets."""
        return _block(linear, None, np.sort(np.concatenate([group[:, 0] for group in self.groups])))

    def through(self, linear: Linear, gain: Callable[[Linear], Size]) -> Size:
        """At least ‖AW'Δu‖ where ``gain`` is a bound of ‖AB‖ for some columns B of W'."""
        blocks = [_block(linear, None, group[:, 0]) for group in self.groups]
        total = _total(gain(block) * part for block, part in zip(blocks, self.parts, strict=True))
        return total if len(blocks) == 1 else total.least(gain(self.seen(linear)) * self.whole)


def _walked(network: Network) -> tuple[_Difference, Size]:
    """Before the last layer: Δv_N = W'Δu + b, and ‖b‖ ≤ lost."""
    every = Size(np.ones(()))  # at least ‖Δz‖ of all neurons
    now = _Difference([np.arange(network.inputs)[:, None]], [every], every)
    for layer, ahead in pairwise(network.layers):
        assert layer.neurons is not None
        alpha, beta = all_slopes(layer.neurons)
        steep = np.maximum(np.abs(alpha), np.abs(beta))
        linear, size = layer.linear, _schur(layer.linear)
        lost = (size * every).lost(0)
        every = (size * now.whole + lost) * steep.max()
        carries = layer.neurons.gather(lambda row, at: (np.full(at.shape, row.name == "identity"),), alpha)[0]
        groups, parts = _groups(ahead.linear, carries), []
        for group in groups:
            part = now.through(linear, partial(_gain, group=group, alpha=alpha, beta=beta))
            parts.append(part + lost * _total(Size(steep[column].max()) for column in group.T))
        whole = Size(norm_above(np.array([part.above for part in parts])))
        if len(groups) > 1 and groups[-1].shape[1] == 1:
            whole = whole.least((_norm(now.seen(linear)) * now.whole + lost) * steep.max())
        now = _Difference(groups, parts, whole)
    return now, (_schur(network.layers[-1].linear) * every).lost(0)


def _total(sizes: Iterable[Size]) -> Size:
    return sum(sizes, start=Size(np.zeros(())))


def _gain(linear: Linear, group: Group, alpha: Array, beta: Array) -> Size:
    """At least the norm of M D W for the neurons or pairs of a group and every D in the slope ranges."""
    steep = np.maximum(np.abs(alpha), np.abs(beta))
    each = _total(_norm(_block(linear, rows, None)) * steep[rows].max() for rows in group.T)
    if group.shape[1] == 1 or (isinstance(linear, Convolution) and linear.entries > _MOST):
        return each
    matrix = sparse.csr_array(_matrix(linear))
    carried, changed = (matrix[rows] for rows in group.T)
    largest = Size(np.zeros(len(group)))
    for ends in (alpha, beta):
        scaled = sparse.csr_array(sparse.diags_array(ends[group[:, 1]]) @ changed)
        rows = _row_norms(sparse.csr_array(carried + scaled))
        rows = rows + (_row_norms(carried) + _row_norms(scaled)).lost(4)
        largest = Size(np.maximum(largest.value, rows.value), max(largest.units, rows.units))
    seen, squares = (abs(carried) + abs(changed) != 0.0).astype(float), largest.squared()
    return each.least(Size(seen.T @ squares.value, squares.units + len(group)).max(0).root())


def _groups(linear: Linear, carries: Array) -> list[Group]:
    """The groups of u with W = W'M: a pair is one that carries and one that does not, and W sees their sum only."""
    pairs = _pairs(linear, carries) if carries.any() and not carries.all() else np.zeros((0, 2), dtype=int)
    alone = np.ones(len(carries), dtype=bool)
    alone[pairs] = False
    singles = [np.flatnonzero(kind & alone)[:, None] for kind in (~carries, carries)]
    return [group for group in (*singles, pairs) if len(group)]


def _pairs(linear: Linear, carries: Array) -> Group:
    """Neurons of which the first carries its value and the second does not, with the same column of W, not zero.

    Of a convolution these are whole channels with the same kernel.
    """
    if isinstance(linear, Convolution):
        flags, places = carries.reshape(linear.channels, -1), math.prod(linear.image)
        columns = np.swapaxes(full_kernel(linear), 0, 1).reshape(linear.channels, -1)
        found = _pairs(columns.T, flags[:, 0]) if (flags == flags[:, :1]).all() else np.zeros((0, 2), dtype=int)
        return (found[:, None, :] * places + np.arange(places)[:, None]).reshape(-1, 2)
    matrix = sparse.csr_array(linear.T)
    matrix.eliminate_zeros()
    same: dict[tuple[bytes, bytes], list[int]] = {}
    for row, part in enumerate(map(slice, matrix.indptr[:-1], matrix.indptr[1:])):
        if part.start < part.stop:
            same.setdefault((matrix.indices[part].tobytes(), matrix.data[part].tobytes()), []).append(row)
    mixed = [one for one in same.values() if len(one) == 2 and carries[one[0]] != carries[one[1]]]
    return np.array([one if carries[one[0]] else one[::-1] for one in mixed], dtype=int).reshape(-1, 2)


def _block(linear: Linear, rows: Array | None, columns: Array | None) -> Linear:
    """Rows and columns of W, or more of them, which is not smaller in norm; None is all.

    Of a convolution these are whole channels.
    """
    if not isinstance(linear, Convolution):
        linear = linear if rows is None else linear[rows]
        return linear if columns is None or len(columns) == linear.shape[1] else linear[:, columns]
    outputs = _channels(rows, linear.outputs, math.prod(linear.places))
    channels = _channels(columns, linear.channels, math.prod(linear.image))
    if len(outputs) == linear.outputs and len(channels) == linear.channels:
        return linear
    return replace(linear, kernel=full_kernel(linear)[outputs][:, channels], groups=1)


def _channels(index: Array | None, count: int, places: int) -> Array:
    """The channels that neurons are all of, in order; all channels if they are not."""
    if index is None or len(index) % places:
        return np.arange(count)
    spots = index.reshape(-1, places)
    found = spots[:, 0] // places
    return found if np.array_equal(spots, found[:, None] * places + np.arange(places)) else np.arange(count)


def _matrix(linear: Linear) -> Weight:
    return linear.matrix() if isinstance(linear, Convolution) else linear


def _norm(linear: Linear) -> Size:
    """At least ‖W‖ of the weight as it is stored.

    A convolution is one matrix at all places, of which so many windows see an entry; if it is one, the norm is that of
    the matrix, at each place of other entries and outputs.
    """
    if isinstance(linear, Convolution) and linear.groups == 1:
        linear, several = _essential(linear)
        hard = math.prod((*linear.image, *linear.kernel.shape[:2], linear.outputs)) > _HARD
        if several == 1 or (hard and (linear.entries > _MOST or min(linear.shape) > _SMALL)):
            by_windows = _norm(linear.kernel.reshape(linear.outputs, -1)) * Size(np.array(float(several))).root()
            return by_windows.least(_schur(linear))
    bound = _schur(linear)
    with suppress(ProofFailed):  # from a guess of λmax that was too low
        if isinstance(linear, Convolution) and (linear.entries > _MOST or min(linear.shape) > _SMALL):
            found = convolution_norm(linear)
            return bound if found is None else bound.least(Size(np.asarray(found)))
        matrix = _matrix(linear)
        if isinstance(matrix, np.ndarray):
            if bound.value <= norm_above(matrix).max() * (1.0 + 2.0**-40):  # as of identities: none is smaller
                return bound
        elif min(matrix.shape) > _SMALL:
            return bound
        power = int(np.clip(np.frexp(bound.value)[1], -1000, 1000))
        matrix = matrix * 2.0**-power  # near one, so that squares do not underflow
        gram = congruence(None, matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T)
        guess = np.asarray(largest_eigenvalue(gram[None])) if len(gram) > _SMALL else None
        return bound.least(Size(np.ldexp(Size(largest_eigenvalue_above(gram, guess)).root().above, power)))
    return bound


def _essential(linear: Convolution) -> tuple[Convolution, int]:
    """W without channels of zeros, and how many windows see an entry at most; taps of zeros are no part of a window."""
    rows, columns, *taps = (np.unique(places) for places in (linear.kernel != 0.0).nonzero())
    spans = [step * int(np.ptp(one)) if one.size else 0 for step, one in zip(linear.dilation, taps, strict=True)]
    several = math.prod(span // step + 1 for span, step in zip(spans, linear.stride, strict=True))
    if linear.circular:
        several = math.prod(linear.window) * _turns(linear)
    return replace(linear, kernel=linear.kernel[rows][:, columns] if rows.size else linear.kernel[:1, :1]), several


def _schur(linear: Linear) -> Size:
    """At least the norm of |W|: the root of its largest row sum times its largest column sum."""
    if isinstance(linear, Convolution):
        size = Size.of(full_kernel(linear).reshape(linear.outputs, linear.channels, -1))
        rows, columns = size.sum((1, 2)), size.sum((0, 2)) * float(_turns(linear))
    else:
        rows, columns = (Size(np.asarray(abs(linear).sum(axis=axis)), linear.shape[axis]) for axis in (1, 0))
    return rows.max(0).root() * columns.max(0).root()


def _turns(linear: Convolution) -> int:
    """How often an entry of the kernel meets one place of a circular image, at most: once for each time around."""
    spans = [s * (places - 1) + 1 for s, places in zip(linear.stride, linear.places, strict=True)]
    return math.prod(-(-span // n) for span, n in zip(spans, linear.image, strict=True)) if linear.circular else 1


def _row_norms(matrix: sparse.csr_array) -> Size:
    """At least the norm of each row."""
    squares = Size.of(matrix.data).squared()
    rows = sparse.csr_array((squares.value, matrix.indices, matrix.indptr), shape=matrix.shape)
    return Size(np.asarray(rows.sum(axis=1)), squares.units + matrix.shape[1]).root()
