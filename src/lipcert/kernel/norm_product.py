"""The product of norms: a bound for all inputs that any network of finite slopes has, whatever its size.

Δu is what two inputs at distance one differ by at some layer, Δv = W Δu, and Δz_i = s_i Δv_i for a slope s_i of the
neuron. So ‖Δz‖ ≤ max|s|·‖W‖·‖Δu‖. Taken layer by layer this loses much where values are carried past a layer, as skips
and max pools do. Two things are looked at for that.

*Groups.* Neurons that carry a value, and those that change it, are bounded apart: ‖Δu_h‖ ≤ Σ_g ‖W_hg‖·‖Δu_g‖. So a
residual block x + C(B x) counts 1 + ‖C‖‖B‖.

*Sums.* max(a, b) = b + relu(a - b) is a neuron that carries b, and one more; what follows sees their sum only, so its
weight has the same column for both. Then W = W'M with M adding them up, W' some columns of W, and u = Mz is what is
bounded. A row of u is Σ s_i r_i·Δu over the neurons of the sum, whose norm is largest where all slopes are at an end of
their range: for a maximum it is 1.

*Norms* of matrices. For any rows B of W, with ``seen`` columns where they are not zero, ‖Wx‖² = Σ_B ‖W_B x_seen‖², so

    ‖W‖² ≤ max_j Σ_{B sees j} ‖W_B‖².

A convolution has the norms of its symbols (:mod:`lipcert.kernel.fourier`), the largest over the frequencies.

Weights are known to some units only: that W is off by E adds at most ‖E‖‖Δz‖, which is ``lost``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise, product
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Approx, Size, congruence, largest_eigenvalue_above, norm_above, spectral_above
from lipcert.kernel.fourier import convolution_norm, full_kernel
from lipcert.kernel.neuron_bounds import all_slopes
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Weight, same_columns
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network

_SMALL = 1024
"""Rows or columns up to which the product of a matrix with its transpose is formed."""
_MOST = 2**25
"""Entries of a convolution up to which its matrix is made."""
_SLOTS = 4
"""Neurons of a sum, at most."""

Linear: TypeAlias = "Weight | Convolution"
Group: TypeAlias = Array
"""Some entries of u: the neurons that each is the sum of, (count, slots), -1 is none. The first has its column."""

_known: WeakKeyDictionary[Network, float] = WeakKeyDictionary()


def norm_product(network: Network) -> float:
    """At least the Lipschitz constant of a network over all inputs, in ℓ2 norms; seconds and little memory."""
    if network not in _known:
        _known[network] = _proved(network)
    return _known[network]


def _proved(network: Network) -> float:
    if not all(np.any(_stored(layer.linear)) for layer in network.layers):
        return 0.0
    with np.errstate(all="ignore"):
        (groups, parts, whole, lost), linear = _walked(network), network.layers[-1].linear
        norms = [_norm(_block(linear, None, group[:, 0])) for group in groups]
        total = _total(norm * part for norm, part in zip(norms, parts, strict=True))
        rest = _block(linear, None, _seen(groups))
        if len(groups) > 1 and _is_quick(rest):
            total = total.least(_norm(rest) * whole)
        return _finite((total + lost).above)


def norm_ellipsoid(network: Network) -> tuple[Array, int]:
    """S and e with Δv_N Δv_Nᵀ ≼ ‖Δz_0‖²·4**e·S for any two inputs: ‖Δu‖²W'W'ᵀ, and what is lost of W'Δu.

    (a + b)(a + b)ᵀ ≼ (1 + ε)aaᵀ + (1 + 1/ε)bbᵀ.
    """
    with np.errstate(all="ignore"):
        groups, _, whole, lost = _walked(network)
        power = int(np.frexp(_finite(whole.above))[1])
        share, rest = (Size(np.ldexp(one.above, -power)).squared() for one in (whole, lost))
        S = congruence(None, _matrix(_block(network.layers[-1].linear, None, _seen(groups))))
        ones = np.ones(len(S))
        S = Approx(S).scaled((share * (1.0 + 2.0**-24)).above * ones, ones).above((rest * (1.0 + 2.0**25)).above)
        _finite(np.abs(S).max())
        return S, power


def _walked(network: Network) -> tuple[list[Group], list[Size], Size, Size]:
    """Before the last layer: Δv_N = W'Δu + b with ‖Δu‖ of each group at most a part, ‖Δu‖ ≤ whole and ‖b‖ ≤ lost."""
    groups, whole = [np.arange(network.inputs)[:, None]], Size(np.ones(()))
    parts, every = [whole], whole  # of all neurons, ‖Δz‖ is at most ``every``
    for layer, ahead in pairwise(network.layers):
        assert layer.neurons is not None
        alpha, beta = all_slopes(layer.neurons)
        steepest = np.maximum(np.abs(alpha), np.abs(beta)).max()
        linear, size, before = layer.linear, _schur(layer.linear), groups
        rest = _block(linear, None, _seen(before))
        lost = (size * every).lost(0)
        every = (size * whole + lost) * steepest
        groups = _groups(ahead.linear, layer.neurons.gather(_carries, alpha)[0] > 0.0)
        found = []
        for group in groups:
            gains = [_gain(_block(linear, None, one[:, 0]), group, alpha, beta) for one in before]
            total = _total(gain * part for gain, part in zip(gains, parts, strict=True))
            if len(before) > 1 and _is_small(rest):
                total = total.least(_gain(rest, group, alpha, beta) * whole)
            found.append(total + lost * steepest * Size(np.asarray(float(group.shape[1]))).root())
        length = Size(norm_above(np.array([part.above for part in found])))
        if all(group.shape[1] == 1 for group in groups) and _is_quick(rest):
            length = length.least((_norm(rest) * whole + lost) * steepest)
        parts, whole = found, length
    return groups, parts, whole, (_schur(network.layers[-1].linear) * every).lost(0)


def _finite(x: Array) -> float:
    if not np.isfinite(x):
        raise ProofFailed("the product of norms is too large for floating point; slopes may grow without end")
    return float(x)


def _total(sizes: Iterable[Size]) -> Size:
    return sum(sizes, start=Size(np.zeros(())))


def _seen(groups: Sequence[Group]) -> Array:
    """The columns of W'."""
    return np.sort(np.concatenate([group[:, 0] for group in groups]))


def _carries(row: Activation, at: Array) -> tuple[Array]:
    """Which neurons hand their value on, as ones."""
    return (np.full(at.shape, float(row.name == "identity")),)


def _gain(linear: Linear, group: Group, alpha: Array, beta: Array) -> Size:
    """At least the norm of M D W for the sums of a group and every D in the slope ranges."""
    steep = np.maximum(np.abs(alpha), np.abs(beta))
    slots = [rows[rows >= 0] for rows in group.T]
    each = _total(_norm(_block(linear, rows, None)) * steep[rows].max(initial=0.0) for rows in slots)
    if len(slots) == 1 or _entries(linear) > _MOST:
        return each
    matrix = sparse.csr_array(_matrix(linear))
    matrix = sparse.vstack([matrix, sparse.csr_array((1, matrix.shape[1]))], format="csr")  # row -1 is zero
    terms = [matrix[rows] for rows in group.T]
    ends = [(np.append(alpha, 0.0)[rows], np.append(beta, 0.0)[rows]) for rows in group.T]
    worst = Size(np.zeros(len(group)))
    for chosen in product(*([low] if (low == high).all() else [low, high] for low, high in ends)):
        scaled = [sparse.diags_array(slopes) @ term for slopes, term in zip(chosen, terms, strict=True)]
        rounded = _total(_row_norms(one) for one in scaled).lost(2 * len(scaled))
        row = _row_norms(sum(scaled[1:], start=scaled[0])) + rounded
        worst = Size(np.maximum(worst.value, row.value), max(worst.units, row.units))
    seen = sum((abs(term) for term in terms[1:]), start=abs(terms[0])) != 0.0
    return each.least(_overlapping(worst, seen))


def _groups(linear: Linear, carries: Array) -> list[Group]:
    """The groups of u with W = W'M: a sum holds neurons that carry and others, and is all that W sees of them."""
    sums = _equal_columns(linear, carries) if carries.any() and not carries.all() else np.zeros((0, 1), dtype=int)
    alone = np.ones(len(carries), dtype=bool)
    alone[sums[sums >= 0]] = False
    singles = [np.flatnonzero(kind & alone)[:, None] for kind in (~carries, carries)]
    return [group for group in (*singles, sums) if len(group)]


def _equal_columns(linear: Linear, carries: Array) -> Group:
    """Neurons with the same column of W, where some of them carry their value and others do not.

    Of a convolution these are whole channels with the same kernel.
    """
    if not isinstance(linear, Convolution):
        return _equal_rows(sparse.csr_array(linear.T), carries)
    flags, places = carries.reshape(linear.channels, -1), math.prod(linear.image)
    if (flags != flags[:, :1]).any():
        return np.zeros((0, 1), dtype=int)
    columns = np.swapaxes(full_kernel(linear), 0, 1).reshape(linear.channels, -1)
    found = _equal_rows(sparse.csr_array(columns), flags[:, 0])[:, None, :]
    spots = np.where(found >= 0, found * places + np.arange(places)[:, None], -1)
    return spots.reshape(-1, spots.shape[-1])


def _equal_rows(matrix: sparse.csr_array, carries: Array) -> Group:
    """Sets of equal rows that are not zero, (sets, slots); those that carry come first."""
    matrix.eliminate_zeros()
    sets: dict[bytes, list[int]] = {}
    for row in np.argsort(~carries, kind="stable"):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        if part.start < part.stop:
            mark = blake2b(matrix.indices[part].tobytes() + matrix.data[part].tobytes()).digest()
            sets.setdefault(mark, []).append(row)
    mixed = [one for one in sets.values() if len(one) <= _SLOTS and carries[one[0]] and not carries[one[-1]]]
    slots = max(map(len, mixed), default=1)
    return np.array([one + [-1] * (slots - len(one)) for one in mixed], dtype=int).reshape(-1, slots)


def _block(linear: Linear, rows: Array | None, columns: Array | None) -> Linear:
    """Rows and columns of W, or more of them; None is all."""
    if isinstance(linear, Convolution):
        found = _channel_block(linear, rows, columns)
        if found is not None:
            return found
        if linear.entries > _MOST:
            return linear  # a part is not larger in norm
        linear = linear.sparse()
    linear = linear if rows is None else linear[rows]
    return linear if columns is None or len(columns) == linear.shape[1] else linear[:, columns]


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


def _stored(linear: Linear) -> Array:
    """The numbers that a map is stored as."""
    if isinstance(linear, Convolution):
        return linear.kernel
    return np.asarray(linear.data) if sparse.issparse(linear) else linear


def _entries(linear: Linear) -> int:
    return linear.entries if isinstance(linear, Convolution) else _stored(linear).size


def _is_small(linear: Linear) -> bool:
    return min(linear.shape) <= _SMALL and _entries(linear) <= _MOST


def _is_quick(linear: Linear) -> bool:
    """Whether its norm takes little time as a whole."""
    return isinstance(linear, Convolution) or _is_small(linear)


def _matrix(linear: Linear) -> Weight:
    return linear.matrix() if isinstance(linear, Convolution) else linear


def _norm(linear: Linear) -> Size:
    """At least ‖W‖ of the weight as it is stored."""
    if 0 in linear.shape or not _entries(linear):
        return Size(np.zeros(()))
    bound = _schur(linear)
    if _is_small(linear):
        power = int(np.clip(np.frexp(bound.value)[1], -1000, 1000))
        matrix = _matrix(linear) * 2.0**-power  # near one, so that squares do not underflow
        gram = congruence(None, matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T)
        return bound.least(Size(np.ldexp(Size(largest_eigenvalue_above(gram)).root().above, power)))
    if isinstance(linear, Convolution):
        found = convolution_norm(linear)
        if found is not None or linear.entries > _MOST:
            return bound if found is None else bound.least(Size(np.asarray(found)))
    matrix = sparse.csr_array(_matrix(linear))
    return bound.least(*(_by_blocks(sparse.csr_array(one)) for one in (matrix, matrix.T)))


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


def _by_blocks(matrix: sparse.csr_array) -> Size:
    """At least ‖W‖ by its blocks of rows that see the same columns; each stands where its first row was."""
    norms, first = _row_norms(matrix).above, np.ones(matrix.shape[0], dtype=bool)
    known: dict[tuple[tuple[int, ...], bytes], Array] = {}
    for rows, _, block in same_columns(matrix):
        key = block.shape, block.tobytes()
        known[key] = known[key] if key in known else spectral_above(block)
        norms[rows[0]], first[rows[1:]] = known[key], False
    kept = np.flatnonzero(first)
    # where entries are stored, since that makes the blocks: a zero of their first row may hide others
    seen = sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    return _overlapping(Size(norms[kept]), seen[kept])


def _row_norms(matrix: sparse.csr_array) -> Size:
    """At least the norm of each row."""
    squares = Size.of(matrix.data).squared()
    rows = sparse.csr_array((squares.value, matrix.indices, matrix.indptr), shape=matrix.shape)
    return Size(np.asarray(rows.sum(axis=1)), squares.units + matrix.shape[1]).root()


def _overlapping(norms: Size, seen: sparse.csr_array) -> Size:
    """At least the root of max_j Σ ‖W_B‖² over the blocks B that see column j."""
    squares = norms.squared()
    return Size(abs(seen.T.astype(float)) @ squares.value, squares.units + len(squares.value)).max(0).root()
