"""Stacks of convolutions from their kernels alone."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.arrays import stored
from lipcert.importers.untrusted import few
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network


def conv_stack(
    kernels: Sequence[Any] | str | os.PathLike[str],
    image: Sequence[int],
    activation: Any = "relu",
    *,
    biases: Sequence[Any] | None = None,
    stride: Any = 1,
    padding: Any = None,
    dilation: Any = 1,
    groups: Any = 1,
    circular: bool = False,
    head: Sequence[Any] = (),
    head_biases: Sequence[Any] | None = None,
) -> Network:
    """A network of convolutions, one after the other, with activations between them.

    Parameters
    ----------
    kernels
        One array (outputs, channels / groups, \\*window) per convolution, or the path of an ``.npz`` file with arrays
        ``K1, K2, …``.
    image
        Sizes of the input image, such as ``(32, 32)``.
    activation
        As in :meth:`Network.from_weights`; the last layer has none unless it is listed.
    biases
        One number per channel for each convolution; entries may be None. Default: zeros.
    stride, padding, dilation, groups
        As for :meth:`Convolution.of`; a list has one entry per convolution. The default padding keeps the size of the
        image at stride 1.
    circular
        Periodic padding in the place of zeros.
    head
        Weights of dense layers after the convolutions, the first of which sees the image flat.
    head_biases
        Their biases.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.conv_stack([np.ones((4, 1, 3, 3)), np.ones((2, 4, 3, 3))], (14, 14), stride=[1, 2])
    >>> net.sizes
    (196, 784, 98)
    """
    arrays = _stored(Path(kernels)) if isinstance(kernels, (str, os.PathLike)) else list(kernels)
    if not arrays:
        raise InvalidInput("kernels is empty: a stack needs at least one convolution")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    each = {name: value if isinstance(value, list) else [value] * len(arrays) for name, value in options.items()}
    each["biases"] = [None] * len(arrays) if biases is None else list(biases)
    for name, values in each.items():
        if len(values) != len(arrays):
            raise InvalidInput(f"{name} has {len(values)} entries for {len(arrays)} kernels")
    weights: list[Any] = []
    vectors: list[Any] = []
    for number, kernel in enumerate(arrays):
        one = Convolution.of(kernel, image, **{name: each[name][number] for name in options}, circular=circular)
        if weights and one.channels != weights[-1].outputs:
            raise InvalidInput(
                f"kernel {number + 1} takes {one.channels} channels, the one before has {weights[-1].outputs} outputs"
            )
        weights.append(one)
        bias, places = each["biases"][number], int(np.prod(one.places))
        vectors.append(None if bias is None else np.repeat(np.broadcast_to(np.asarray(bias), (one.outputs,)), places))
        image = one.places
    vectors += [None] * len(head) if head_biases is None else list(head_biases)
    made = Network.from_weights([*weights, *head], vectors, activation)
    return replace(made, input_shape=(weights[0].channels, *weights[0].image))


def _stored(path: Path) -> list[Any]:
    arrays = stored(path)
    numbered = sorted((int(name[1:]), name) for name in arrays if re.fullmatch(r"K[1-9][0-9]{0,8}", name))
    if len(numbered) != len(arrays) or [number for number, _ in numbered] != list(range(1, len(arrays) + 1)):
        raise UnreadableModel(f"{path} must have arrays K1, K2, … without gaps; it holds {few(arrays, 40)}")
    return [arrays[name] for _, name in numbered]
