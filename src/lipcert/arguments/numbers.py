"""What users hand in, as arrays and names, or errors that name the argument and what came.

Numbers and points; matrices; boxes, balls and scales; convolutions; activations.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lipcert.errors import InvalidInput

Array: TypeAlias = NDArray[Any]


def numbers(name: str, value: Any) -> Array:
    """A finite float64 array, or an error that names the argument and what came."""
    if _masked(value):
        raise InvalidInput(f"{name} has masked entries; fill them, as in {name}.filled(0.0), or leave them out")
    try:
        array = np.asarray(_without_grad(value))
        with np.errstate(over="ignore"):  # what overflows is refused as not finite
            array = array.astype(np.float64) if array.dtype.kind in "fiubO" else array
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:  # of a list, an int, a tensor
        raise InvalidInput(f"{name} must be numbers, got {type(value).__name__}: {error}") from None
    if array.dtype.kind != "f":
        got = f"{type(value).__name__} of {array.dtype.name}" if array.ndim else f"{array.item()!r:.60}"
        raise InvalidInput(f"{name} must be real numbers, got {got}")
    if not np.isfinite(array).all():
        odd = f"{np.count_nonzero(~np.isfinite(array))} NaN or infinite entries" if array.ndim else array.item()
        raise InvalidInput(f"{name} must be finite, got {odd}")
    return array


def scaled(name: str, value: Any) -> Array:
    """The same for points; bytes, as images have them, get a word about their scale."""
    kind = getattr(value, "dtype", None)
    if kind == np.uint8 if isinstance(value, np.ndarray) else str(kind).endswith("uint8"):
        warn(
            f"{name} is uint8 and is taken as it is, from 0 to 255; if the network was trained on numbers from 0 to 1,"
            f" give {name} / 255.0, or give floats to say that it was not",
            stacklevel=3,
        )
    return numbers(name, value)


def _without_grad(value: Any) -> Any:
    """A tensor of PyTorch, or those in a list, as an array; its numbers are the same, its history is left behind."""
    if isinstance(value, (list, tuple)):
        return [_without_grad(item) for item in value] if any(hasattr(item, "detach") for item in value) else value
    if not hasattr(value, "detach"):
        return value
    bare = value.detach().cpu()
    return (bare.double() if bare.is_floating_point() else bare).numpy()  # NumPy has no bfloat16


def _masked(value: Any) -> bool:
    """Whether an array, or one in a list, has entries that its mask hides; numpy would use what is behind the mask."""
    if isinstance(value, (list, tuple)):
        return any(_masked(item) for item in value)
    return bool(np.ma.is_masked(value)) if isinstance(value, np.ma.MaskedArray) else False


def listed(name: str, value: Any) -> list[Any]:
    """A list, or an error that names the argument."""
    try:
        return list(value)
    except TypeError:
        raise InvalidInput(f"{name} must be a list, one entry per layer; got {type(value).__name__}") from None


def matrix(name: str, value: Any) -> Any:
    """A matrix (outputs, inputs) of float64, dense or sparse, or an error that names it."""
    if sparse.issparse(value):
        try:  # refuse indices outside the matrix before anything is written through them
            getattr(value, "check_format", lambda **_: None)(full_check=True)
        except ValueError as error:
            raise InvalidInput(f"{name} is not a sound sparse matrix: {error}") from None
        numbers(name, value.data)
        found = sparse.csr_array(value, dtype=np.float64, copy=True)
        found.sum_duplicates()
        numbers(name, found.data)
    else:
        found = numbers(name, value)
    if found.ndim != 2 or 0 in found.shape:
        raise InvalidInput(f"{name} must be a matrix (outputs, inputs), got shape {found.shape}")
    return found


def vector(name: str, value: Any, size: int) -> Array:
    """A vector of that many numbers; zeros for None."""
    if value is None:
        return np.zeros(size)
    found = numbers(name, value)
    if found.size != size or found.ndim > 2 or (found.ndim == 2 and 1 not in found.shape):
        raise InvalidInput(f"{name} must have {size} numbers, as the weight has rows; got shape {found.shape}")
    return found.reshape(size)


def check_chain(shapes: Sequence[tuple[int, int]], widths: Sequence[int]) -> None:
    """An error unless matrices of these shapes can follow each other; ``widths`` are those of hidden layers."""
    fits = all(one[1] == two[0] for one, two in itertools.pairwise(shapes))
    hint = " (they fit when transposed: pass W.T)" if fits else ""
    for i, (outputs, (_, inputs)) in enumerate(zip(widths, shapes[1:]), 1):
        if inputs != outputs:
            raise InvalidInput(
                f"weights of layers {i} and {i + 1} do not fit: layer {i} has {outputs} outputs, layer {i + 1}"
                f" takes {inputs} inputs; each weight must be (outputs, inputs){hint}"
            )


def layers(weights: Any, biases: Any, convolution: type) -> tuple[list[Any], list[Array]]:
    """Weights, and a bias for each; convolutions are left as they are."""
    matrices: list[Any] = [
        w if isinstance(w, convolution) else matrix(f"weight of layer {i}", w)
        for i, w in enumerate(listed("weights", weights), 1)
    ]
    if not matrices:
        raise InvalidInput("weights is empty: a network needs at least one layer")
    offsets = [None] * len(matrices) if biases is None else listed("biases", biases)
    if len(offsets) != len(matrices):
        raise InvalidInput(f"biases has {len(offsets)} entries for {len(matrices)} layers")
    pairs = enumerate(zip(offsets, matrices, strict=True), 1)
    return matrices, [vector(f"bias of layer {i}", b, w.shape[0]) for i, (b, w) in pairs]


def hidden(spec: Any, depth: int, single: tuple[type, ...]) -> list[Any]:
    """What stands for the activations of the hidden layers, and perhaps of the output; one of ``single`` for all."""
    if isinstance(spec, single):
        return [spec] * (depth - 1)
    specs = listed("activation", spec)
    if len(specs) not in (depth - 1, depth):
        raise InvalidInput(f"activation must be one name, or {depth - 1} entries for {depth} layers; got {len(specs)}")
    return specs


def flattened(name: str, point: Array, inputs: int, shape: tuple[int, ...] | None) -> Array:
    """A point, or several, of shape (..., inputs).

    Inputs may have the ``shape`` that a model was read with. Where no shape is known, one point may have any shape; its
    coordinates are taken in C order.
    """
    if point.ndim and point.shape[-1] == inputs:
        return point
    shape = shape if shape and len(shape) > 1 else None
    if shape is not None and point.shape[-len(shape) :] == shape:
        return point.reshape(*point.shape[: -len(shape)], inputs)
    if point.size == inputs and (point.ndim > 1 if shape is None else _bare(point.shape) == _bare(shape)):
        return point.reshape(inputs)
    wanted = f", in the shape {shape} or flat" if shape else ""
    raise InvalidInput(f"{name} must have {inputs} numbers, as the network has inputs{wanted}; got shape {point.shape}")


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones: a batch of one, or a single channel."""
    return tuple(itertools.dropwhile(lambda size: size == 1, shape))


def corners(lower: Any, upper: Any) -> tuple[Array, Array]:
    """The ends of a box, in one shape."""
    low, high = _alike(("lower", scaled("lower", lower)), ("upper", scaled("upper", upper)))
    if (low > high).any():
        where = np.argwhere(low > high)[0]
        raise InvalidInput(
            f"lower must not exceed upper; at index {where.tolist()} lower is {low[tuple(where)]},"
            f" upper is {high[tuple(where)]}"
        )
    return low, high


def radii(radius: Any, center: Array) -> Array:
    """A radius for each of the centres (..., inputs)."""
    size = numbers("radius", radius)
    if (size < 0).any():
        raise InvalidInput(f"radius must be at least 0, got {radius}")
    if size.shape not in ((), center.shape[:-1]) and size.size != 1:
        raise InvalidInput(
            f"radius must be one number, or one per center of shape {center.shape[:-1]}; got shape {size.shape}"
        )
    return np.array(np.broadcast_to(size.reshape(()) if size.size == 1 else size, center.shape[:-1]))


def clip_of(clip: Any, center: Array) -> tuple[Array, Array]:
    """The ends of the box, or the pair, that a ball is clipped to, with as many coordinates as its centre has."""
    n = center.shape[-1]
    if hasattr(clip, "lower"):
        low, high = clip.lower, clip.upper
        if clip.uniform:
            low, high = np.full(n, low[0]), np.full(n, high[0])
    else:
        try:
            low, high = clip
        except (TypeError, ValueError):
            raise InvalidInput(f"clip must be a pair (lower, upper), got {clip!r}") from None
        low, high = (_alike(("center", center), ("clip", numbers("clip", side)))[1] for side in (low, high))
        if (low > high).all():
            raise InvalidInput(f"clip must be (lower, upper); the limits are swapped in {clip!r}")
        corners(low, high)
    if low.shape[-1] != n:
        raise InvalidInput(f"clip has {low.shape[-1]} coordinates, center has {n}")
    if not ((low <= center) & (center <= high)).all():
        raise InvalidInput("center must lie inside clip; project it there first, for example with numpy.clip")
    return low, high


def _alike(one: tuple[str, Array], two: tuple[str, Array]) -> tuple[Array, Array]:
    """Two arrays brought to one shape."""
    try:
        first, second = np.broadcast_arrays(one[1], two[1])
    except ValueError:
        shapes = f"{one[0]} has shape {one[1].shape}, {two[0]} has shape {two[1].shape}"
        raise InvalidInput(f"{one[0]} and {two[0]} must have as many coordinates: {shapes}") from None
    return first, second


Sizes: TypeAlias = tuple[int, ...]
Pads: TypeAlias = tuple[tuple[int, int], ...]


def convolution(
    kernel: Any, image: Any, stride: Any, padding: Any, dilation: Any, groups: Any, circular: Any
) -> tuple[Array, Sizes, Sizes, Pads, Sizes]:
    """Kernel, sizes of the image, strides, paddings and dilations, per axis."""
    taps = np.array(numbers("kernel", kernel))
    axes = taps.ndim - 2
    if axes < 1 or 0 in taps.shape:
        raise InvalidInput(f"kernel must be (outputs, channels, *window), got shape {taps.shape}")
    if not isinstance(groups, (int, np.integer)) or groups < 1 or taps.shape[0] % groups:
        raise InvalidInput(f"groups must divide the {taps.shape[0]} outputs of the kernel, got {groups!r}")
    sizes, steps, gaps = (_whole(*one, axes) for one in (("image", image), ("stride", stride), ("dilation", dilation)))
    spans = [gap * (size - 1) for gap, size in zip(gaps, taps.shape[2:], strict=True)]
    pads = tuple((span // 2, span - span // 2) for span in spans) if padding is None else _sides(padding, axes)
    if any(n + sum(pair) <= span for n, pair, span in zip(sizes, pads, spans, strict=True)):
        raise InvalidInput(
            f"a kernel of shape {taps.shape} does not fit into an image of sizes {sizes}, padded by {pads}"
        )
    # a window must see each place of a circular image once at most
    if circular and any(span >= size for span, size in zip(spans, sizes, strict=True)):
        raise InvalidInput(f"the window of a circular convolution must fit into the image {sizes}, got {taps.shape}")
    if circular and any(max(pair) > size for pair, size in zip(pads, sizes, strict=True)):
        raise InvalidInput(f"circular padding must be at most the image {sizes}, got {pads}")
    return taps, sizes, steps, pads, gaps


def _whole(name: str, value: Any, axes: int) -> tuple[int, ...]:
    """Positive whole numbers, one per axis."""
    sizes = np.broadcast_to(numbers(name, value), (axes,)) if np.size(value) in (1, axes) else np.zeros(1)
    if (sizes < 1).any() or (sizes != np.round(sizes)).any():
        raise InvalidInput(f"{name} must be a positive whole number, or {axes} of them, one per axis; got {value!r}")
    return tuple(int(size) for size in sizes)


def _sides(value: Any, axes: int) -> tuple[tuple[int, int], ...]:
    """Padding as pairs (before, after) of whole numbers that are at least 0, one per axis."""
    pads = numbers("padding", value)
    if pads.shape not in ((), (axes,), (axes, 2)) or (pads < 0).any() or (pads != np.round(pads)).any():
        raise InvalidInput(f"padding must be whole numbers of at least 0, one or a pair per axis; got {value!r}")
    pairs = np.broadcast_to(pads if pads.ndim == 2 else np.reshape(pads, (-1, 1)), (axes, 2))
    return tuple((int(before), int(after)) for before, after in pairs)


ALIASES: Final[Mapping[str, str]] = {
    "linear": "identity",
    "prelu": "leaky_relu",
    "swish": "silu",
    "atan": "arctan",
    "none": "identity",
    "cosine": "cos",
    "sine": "sin",
    "absolute": "abs",
}
PRESETS: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {"abs": ("leaky_relu", {"negative_slope": -1.0})}
"""Names of rows with certain parameters."""
Defaults = Callable[[str], Mapping[str, float]]
"""The parameters of a row, in order, with their defaults."""


def activation(
    name: Any, parameters: Mapping[str, Any], rows: Collection[str], defined: Callable[[str], str | None], of: Defaults
) -> tuple[str, tuple[Any, ...]]:
    """The row that is meant, and its parameters; ``defined`` knows the names that users have defined."""
    if isinstance(name, str) and "(" in name and not parameters:
        name, parameters = _call(name, lambda short: of(_key(short, rows, defined)[0]))
    key, preset = _key(name, rows, defined)
    slots = {} if preset else of(key)
    unknown = set(parameters) - set(slots)
    if unknown:
        known = f"it takes {', '.join(slots) or 'none'}"
        raise InvalidInput(f"activation {name!r} has no parameter {', '.join(sorted(unknown))}; {known}")
    given = {label: numbers(f"activation {key!r}: {label}", parameters.get(label, slots[label])) for label in slots}
    for value in given.values():
        value.flags.writeable = False
    return key, tuple(preset.values()) or tuple(value if value.ndim else float(value) for value in given.values())


def _key(name: Any, rows: Collection[str], defined: Callable[[str], str | None]) -> tuple[str, Mapping[str, float]]:
    """The row of a name, and what a preset says; case, spaces, dashes and underscores do not matter."""
    if not isinstance(name, str):
        raise InvalidInput(f"activation must be a name or an Activation, got {type(name).__name__}")
    mine = defined(name)
    if mine is not None:
        return mine, {}
    squeezed = "".join(c for c in name.lower() if c.isalnum())
    names = {key.replace("_", ""): key for key in (*rows, *PRESETS)}
    names |= {key.replace("_", ""): v for key, v in ALIASES.items()}
    if squeezed not in names:
        raise InvalidInput(f"unknown activation {name!r}; known are {', '.join(sorted({*rows, *PRESETS, *ALIASES}))}")
    return PRESETS.get(names[squeezed], (names[squeezed], {}))


def _call(text: str, of: Defaults) -> tuple[str, Mapping[str, float]]:
    """The name in ``"name(0.2, beta=1)"``, and the parameters in its brackets."""
    match = re.fullmatch(r"([^()]*)(?:\(([^()]*)\))?", text.strip())
    if match is None:
        raise InvalidInput(f"activation {text!r} is not a name or name(number, …), as in leaky_relu(0.2)")
    given = [part for part in (match[2] or "").split(",") if part.strip()]
    slots = list(of(match[1]))
    parameters: dict[str, float] = {}
    for place, part in enumerate(given):
        label, _, number = part.rpartition("=")
        if not label and place >= len(slots):
            known = ", ".join(slots) or "nothing"
            raise InvalidInput(f"activation {text!r} has too many parameters; {match[1]} takes {known}")
        slot = label.strip() or slots[place]
        if slot in parameters:
            raise InvalidInput(f"activation {text!r} says {slot} twice")
        try:
            parameters[slot] = float(number)
        except ValueError:
            raise InvalidInput(f"activation {text!r}: {part.strip()!r} is not a number") from None
    return match[1], parameters
