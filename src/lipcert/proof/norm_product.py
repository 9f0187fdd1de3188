"""The product of norms: a bound for all inputs that any network of finite slopes has, whatever its size.

Δu is what two inputs at distance one differ by at some layer, Δv = W Δu, and Δz_i = s_i Δv_i for a slope s_i of the
neuron. So ‖Δz‖ ≤ max|s|·‖W‖·‖Δu‖. Taken layer by layer this loses much where values are carried past a layer, as skips
and max pools do. Two things are looked at for that.

*Groups.* Neurons that carry a value, and those that change it, are bounded apart: ‖Δu_h‖ ≤ Σ_g ‖W_hg‖·‖Δu_g‖. So a
residual block x + C(B x) counts 1 + ‖C‖‖B‖.

*Sums.* max(a, b) = b + relu(a - b) is a neuron that carries b, and one more; what follows sees their sum only, so its
weight has the same column for both. Then W = W'M with M adding them up, and u = Mz is what is bounded. A row of u is
Σ s_i r_i·Δu over the neurons of the sum, whose norm is largest where all slopes are at an end of their range: for a
maximum it is 1.

*Norms* of matrices. For any rows B of W, with ``seen`` columns where they are not zero, ‖Wx‖² = Σ_B ‖W_B x_seen‖², so

    ‖W‖² ≤ max_j Σ_{B sees j} ‖W_B‖².

A convolution has the norms of its symbols (:mod:`torus`), the largest over the frequencies.

Weights are known to LOOSE units: that W differs from W'M by E with |E| ≤ LOOSE·u|W| adds at most ‖E‖‖Δz‖.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight, same_columns
from lipcert.model.convolution import Convolution
from lipcert.model.network import Layer, Network
from lipcert.proof.near import congruence, largest_eigenvalue_above
from lipcert.proof.neuron_bounds import all_slopes
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    U,
    gamma,
    norm_above,
    raise_diagonal,
    spectral_above,
    square_above,
    stretched,
    up,
)
from lipcert.proof.symbols import convolution_norm
from lipcert.proof.torus import full_kernel

_SMALL = 1024
"""Rows or columns up to which the product of a matrix with its transpose is formed."""
_MOST = 2**25
"""Entries of a convolution up to which its matrix is made."""
_SLOTS = 4
"""Neurons of a sum, at most."""

Linear: TypeAlias = "Weight | Convolution"


@dataclass(frozen=True, eq=False)
class _Group:
    """Some entries of u: their columns in W', and the neurons that each is the sum of, (count, slots); -1 is none."""

    columns: Array
    neurons: Array


_known: WeakKeyDictionary[Network, float] = WeakKeyDictionary()


def norm_product(network: Network) -> float:
    """At least the Lipschitz constant of a network over all inputs, in ℓ2 norms; seconds and little memory."""
    if network not in _known:
        _known[network] = _proved(network)
    return _known[network]


def _proved(network: Network) -> float:
    if any(_is_zero(layer.linear) for layer in network.layers):
        return 0.0
    with np.errstate(all="ignore"):
        end = _walked(network)
        total = sum(
            _norm(_block(end.linear, None, one.columns)) * part for one, part in zip(end.groups, end.parts, strict=True)
        )
        if len(end.groups) > 1 and _is_quick(end.linear):
            total = min(total, _norm(end.linear) * end.whole)
        return _finite(_above(total + end.lost))


def norm_ellipsoid(network: Network) -> tuple[Array, int]:
    """S and e with Δv_N Δv_Nᵀ ≼ ‖Δz_0‖²·4**e·S for any two inputs: ‖Δu‖²W'W'ᵀ, and what is lost of W'Δu.

    (a + b)(a + b)ᵀ ≼ (1 + ε)aaᵀ + (1 + 1/ε)bbᵀ.
    """
    with np.errstate(all="ignore"):
        end = _walked(network)
        whole = _finite(end.whole)
        power = int(np.frexp(whole)[1])
        share, lost = float(np.ldexp(whole, -power)), float(np.ldexp(end.lost, -power))
        S = congruence(None, _matrix(end.linear)) * (float(square_above(np.asarray(share))) * (1.0 + 2.0**-24))
        rest = (1.0 + 2.0**25) * square_above(np.asarray(lost)) * UP
        S = raise_diagonal(S, gamma(4) * np.abs(S).sum(axis=-1) * UP + rest + TINY)
        _finite(float(np.abs(S).max()))
        return S, power


@dataclass(frozen=True, eq=False)
class _End:
    """Before the last layer: Δv_N = W'Δu + b with ‖Δu‖ of each group at most a part, ‖Δu‖ ≤ whole and ‖b‖ ≤ lost."""

    linear: Linear
    groups: Sequence[_Group]
    parts: Sequence[float]
    whole: float
    lost: float


def _walked(network: Network) -> _End:
    """All layers but the last."""
    linear, groups = network.layers[0].linear, [_Group(np.arange(network.inputs), np.zeros((0, 1)))]
    parts, whole, every = [1.0], 1.0, 1.0  # at least ‖Δu‖ of each group and of all, and ‖Δz‖ of all neurons
    for layer, ahead in pairwise(network.layers):
        assert layer.neurons is not None
        alpha, beta = all_slopes(layer.neurons)
        steepest = float(np.maximum(np.abs(alpha), np.abs(beta)).max())
        lost, before = _lost(linear, groups, every), groups
        every = _above(steepest * (_schur(linear) * whole + lost))
        following, groups = _sums(ahead.linear, _carries(layer))
        found = []
        for group in groups:
            norms = [_gain(linear, group, one.columns, alpha, beta) for one in before]
            total = sum(norm * part for norm, part in zip(norms, parts, strict=True))
            if len(before) > 1 and _is_small(linear):
                total = min(total, _gain(linear, group, None, alpha, beta) * whole)
            found.append(_above(total + math.sqrt(group.neurons.shape[1]) * steepest * lost))
        single = all(group.neurons.shape[1] == 1 for group in groups)
        chained = _above(steepest * (_norm(linear) * whole + lost)) if single and _is_quick(linear) else np.inf
        linear, parts, whole = following, found, min(_length(found), chained)
    return _End(linear, groups, parts, whole, _lost(linear, groups, every))


def _finite(x: float) -> float:
    if not np.isfinite(x):
        raise ProofFailed("the product of norms is too large for floating point; slopes may grow without end")
    return x


def _above(x: float) -> float:
    """More than a sum of some products of non-negative numbers, as computed."""
    return float(stretched(np.asarray(x), 64))


def _length(parts: Sequence[float]) -> float:
    return float(norm_above(np.array([parts]))[0])


def _carries(layer: Layer) -> Array:
    """Which neurons hand their value on."""
    assert layer.neurons is not None
    found = np.zeros(layer.size, dtype=bool)
    for row, index in layer.neurons.groups:
        found[index] = row.name == "identity"
    return found


def _lost(linear: Linear, groups: Sequence[_Group], every: float) -> float:
    """At least ‖E Δz‖ for ‖Δz‖ ≤ ``every``: ‖E‖ ≤ LOOSE·u‖|W'|‖‖M‖."""
    slots = max(group.neurons.shape[1] for group in groups)
    return _above(LOOSE * U * UP * _schur(linear) * math.sqrt(slots) * every)


def _gain(linear: Linear, group: _Group, columns: Array | None, alpha: Array, beta: Array) -> float:
    """At least the norm of M D W over some columns, for the sums of a group and every D in the slope ranges."""
    steep = np.maximum(np.abs(alpha), np.abs(beta))
    slots = [rows[rows >= 0].astype(int) for rows in group.neurons.T]
    each = sum(float(steep[rows].max(initial=0.0)) * _norm(_block(linear, rows, columns)) for rows in slots)
    if len(slots) == 1 or _entries(linear) > _MOST:
        return _above(each)
    matrix = sparse.csr_array(_matrix(_block(linear, None, columns)))
    matrix = sparse.vstack([matrix, sparse.csr_array((1, matrix.shape[1]))], format="csr")  # row -1 is zero
    ends = [(np.append(alpha, 0.0)[rows], np.append(beta, 0.0)[rows]) for rows in group.neurons.T.astype(int)]
    terms = [matrix[rows] for rows in group.neurons.T.astype(int)]
    worst = np.zeros(len(group.neurons))
    for chosen in product(*([0] if (low == high).all() else [0, 1] for low, high in ends)):
        scaled = [sparse.diags_array(end[which]) @ term for end, which, term in zip(ends, chosen, terms, strict=True)]
        total = sum(scaled[1:], start=scaled[0])
        size = sum((abs(one) for one in scaled[1:]), start=abs(scaled[0]))  # |Σ| is wrong by few u of it
        rounded = abs(total) + 2.0**-50 * size
        worst = np.maximum(worst, _row_squares(rounded))
    seen = sum((abs(term) for term in terms[1:]), start=abs(terms[0])) != 0.0
    return min(_above(each), _overlapping(worst, sparse.csr_array(seen)))


def _sums(linear: Linear, carries: Array) -> tuple[Linear, list[_Group]]:
    """W' and the groups of u with W = W'M: a sum holds neurons that carry and others, and is all that W sees of them.

    Neurons that W does not see are left out.
    """
    sums = _equal_columns(linear, carries) if carries.any() and not carries.all() else np.zeros((0, 1), dtype=int)
    inside = np.zeros(len(carries), dtype=bool)
    inside[sums[sums >= 0]] = True
    singles = [np.flatnonzero(kind & ~inside) for kind in (~carries, carries)]
    neurons = [one[:, None] for one in singles if one.size] + ([sums] if len(sums) else [])
    kept = np.concatenate([one[:, 0] for one in neurons])
    starts = np.cumsum([0, *map(len, neurons)])
    if _entries(linear) > _MOST and isinstance(linear, Convolution) and _channel_block(linear, None, kept) is None:
        every = np.arange(len(carries))
        return linear, [_Group(every, every[:, None])]  # too large for a matrix, in which columns can change places
    groups = [_Group(np.arange(*ends), one) for ends, one in zip(pairwise(starts), neurons, strict=True)]
    return _block(linear, None, kept), groups


def _equal_columns(linear: Linear, carries: Array) -> Array:
    """Neurons with the same column of W, (sums, slots), where some of them carry their value and others do not."""
    if isinstance(linear, Convolution):
        places = math.prod(linear.image)
        flags = carries.reshape(-1, places)
        if (flags != flags[:, :1]).any():
            return np.zeros((0, 1), dtype=int)
        kernel = full_kernel(linear)
        columns = sparse.csr_array(np.swapaxes(kernel, 0, 1).reshape(kernel.shape[1], -1))
        found = _equal_rows(columns, flags[:, 0])
        spots = found[:, None, :] * places + np.arange(places)[None, :, None]
        return np.where(found[:, None, :] >= 0, spots, -1).reshape(-1, found.shape[1])
    return _equal_rows(sparse.csr_array(linear.T), carries)


def _equal_rows(matrix: sparse.csr_array, carries: Array) -> Array:
    """Sets of equal rows, (sets, slots); those that carry come first."""
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    marks = matrix @ np.random.default_rng(0).standard_normal(matrix.shape[1])
    order = np.lexsort((~carries, marks))
    order = order[np.diff(matrix.indptr)[order] > 0]
    starts = np.flatnonzero(np.diff(marks[order], prepend=np.nan) != 0.0)
    counts = np.diff(starts, append=len(order))
    mixed = (counts > 1) & (counts <= _SLOTS) & carries[order[starts]]
    mixed &= ~carries[order[starts + counts - 1]]
    starts, counts = starts[mixed], counts[mixed]
    slots = int(counts.max(initial=1))
    found = np.full((len(starts), slots), -1)
    for slot in range(slots):
        has = counts > slot
        found[has, slot] = order[starts[has] + slot]
        one, two = (matrix[rows[has]] for rows in (found[:, 0], found[:, slot]))
        if not all(np.array_equal(getattr(one, a), getattr(two, a)) for a in ("indptr", "indices", "data")):
            return np.zeros((0, 1), dtype=int)  # two marks that are equal by chance
    return found


def _block(linear: Linear, rows: Array | None, columns: Array | None) -> Linear:
    """Rows and columns of W; None is all of them."""
    if isinstance(linear, Convolution):
        found = _channel_block(linear, rows, columns)
        if found is not None:
            return found
        if linear.entries > _MOST:
            return linear  # a part is not larger in norm
        linear = linear.sparse()
    linear = linear if rows is None else linear[rows]
    return linear if columns is None else linear[:, columns]


def _channel_block(linear: Convolution, rows: Array | None, columns: Array | None) -> Linear | None:
    """Rows and columns that are whole channels, as a convolution; None if they are not."""
    outputs = _channels(rows, linear.outputs, math.prod(linear.places))
    channels = _channels(columns, linear.channels, math.prod(linear.image))
    if outputs is None or channels is None:
        return None
    kernel = full_kernel(linear)[outputs][:, channels]
    return replace(linear, kernel=kernel, groups=1) if kernel.size else np.zeros((0, 0))


def _channels(index: Array | None, count: int, places: int) -> Array | None:
    """The channels that neurons are all of, in order; None if they are not."""
    if index is None:
        return np.arange(count)
    if len(index) % places:
        return None
    spots = index.reshape(-1, places)
    found = spots[:, 0] // places
    return found if np.array_equal(spots, found[:, None] * places + np.arange(places)) else None


def _entries(linear: Linear) -> int:
    if isinstance(linear, Convolution):
        return linear.entries
    return int(linear.size if isinstance(linear, np.ndarray) else linear.nnz)


def _is_zero(linear: Linear) -> bool:
    entries = (
        linear.kernel if isinstance(linear, Convolution) else linear if isinstance(linear, np.ndarray) else linear.data
    )
    return not np.any(entries)


def _is_small(linear: Linear) -> bool:
    return min(linear.shape) <= _SMALL and _entries(linear) <= _MOST


def _is_quick(linear: Linear) -> bool:
    """Whether its norm takes little time as a whole."""
    return isinstance(linear, Convolution) or _is_small(linear)


def _matrix(linear: Linear) -> Weight:
    return linear.matrix() if isinstance(linear, Convolution) else linear


def _norm(linear: Linear) -> float:
    """At least ‖W‖ of the weight as it is stored."""
    if 0 in linear.shape or not _entries(linear):
        return 0.0
    bound = _schur(linear)
    if _is_small(linear):
        matrix = _matrix(linear)
        power = int(np.frexp(bound)[1])  # near one, so that squares do not underflow
        matrix = _scaled(matrix, -power)
        gram = congruence(None, matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T)
        root = float(stretched(np.sqrt(largest_eigenvalue_above(gram)), 2))
        return min(bound, _above(float(np.ldexp(root, power))))
    if isinstance(linear, Convolution):
        found = convolution_norm(linear)
        if found is not None:
            return min(bound, found)
        if linear.entries > _MOST:
            return bound
    matrix = sparse.csr_array(_matrix(linear))
    return min(bound, *(_by_blocks(sparse.csr_array(one)) for one in (matrix, matrix.T)))


def _scaled(matrix: Weight, power: int) -> Weight:
    """Times a power of two."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.ldexp(matrix, power))
    return sparse.csr_array((np.ldexp(matrix.data, power), matrix.indices, matrix.indptr), shape=matrix.shape)


def _schur(linear: Linear) -> float:
    """At least the norm of |W|: the root of its largest row sum times its largest column sum."""
    if isinstance(linear, Convolution):
        size = np.abs(full_kernel(linear)).reshape(linear.outputs, linear.channels, -1)
        sums = size.sum(axis=(1, 2)).max(), size.sum(axis=(0, 2)).max() * _turns(linear)
    else:
        sums = abs(linear).sum(axis=1).max(), abs(linear).sum(axis=0).max()
    return _above(math.sqrt(float(sums[0])) * UP * math.sqrt(float(sums[1])) * UP)


def _turns(linear: Convolution) -> int:
    """How often an entry of the kernel meets one place of a circular image, at most: once for each time around."""
    spans = [s * (places - 1) + 1 for s, places in zip(linear.stride, linear.places, strict=True)]
    return math.prod(-(-span // n) for span, n in zip(spans, linear.image, strict=True)) if linear.circular else 1


def _by_blocks(matrix: sparse.csr_array) -> float:
    """At least ‖W‖ by its blocks of rows that see the same columns."""
    power = int(np.frexp(np.abs(matrix.data).max(initial=0.0))[1])
    matrix = _scaled(matrix, -power)
    matrix.sum_duplicates()
    squares, first = _row_squares(matrix), np.ones(matrix.shape[0], dtype=bool)
    known: dict[tuple[tuple[int, ...], bytes], float] = {}
    for rows, _, block in same_columns(matrix):
        key = block.shape, block.tobytes()
        if key not in known:
            known[key] = float(square_above(spectral_above(block)))
        first[rows[1:]] = False
        squares[rows[0]] = min(known[key], float(up(squares[rows].sum() * UP)))
    kept = np.flatnonzero(first)
    # where entries are stored, since that makes the blocks: a zero of their first row may hide others
    seen = sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    return _above(float(np.ldexp(_overlapping(squares[kept], seen[kept]), power)))


def _row_squares(matrix: sparse.csr_array) -> Array:
    """At least the squared norm of each row; entries are near one, or less."""
    squares = sparse.csr_array((square_above(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
    return np.asarray(squares.sum(axis=1) * UP)


def _overlapping(squares: Array, seen: sparse.csr_array) -> float:
    """At least the root of max_j Σ squares of the blocks that see column j."""
    total = np.asarray(abs(seen.T.astype(float)) @ squares).max(initial=0.0)
    return float(stretched(np.sqrt(total * UP + TINY), 2))
