"""Stacks of convolutions from their kernels alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lipcert.errors import InvalidInput
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network


def conv_stack(
    kernels: Sequence[Any],
    image: Sequence[int],
    activation: Any = "relu",
    *,
    head: Sequence[Any] = (),
    circular: bool = False,
    **options: Any,
) -> Network:
    """A network of convolutions without biases, one after the other, with activations between them.

    Parameters
    ----------
    kernels
        One array (outputs, channels / groups, \\*window) per convolution.
    image
        Sizes of the input image, such as ``(32, 32)``.
    activation
        As in :meth:`Network.from_weights`; the last layer has none unless it is listed.
    head
        Weights of dense layers after the convolutions, the first of which sees the image flat.
    circular
        Periodic padding in the place of zeros.
    options
        ``stride``, ``padding``, ``dilation`` and ``groups`` as for :meth:`Convolution.of`; a list has one entry per
        convolution. The default padding keeps the size of the image at stride 1.

    Examples
    --------
    >>> import numpy as np
    >>> import lipcert as lc
    >>> lc.conv_stack([np.ones((4, 1, 3, 3)), np.ones((2, 4, 3, 3))], (14, 14), stride=[1, 2]).sizes
    (196, 784, 98)
    """
    each = {name: value if isinstance(value, list) else [value] * len(kernels) for name, value in options.items()}
    if wrong := [name for name, values in each.items() if len(values) != len(kernels)]:
        raise InvalidInput(f"{wrong[0]} has {len(each[wrong[0]])} entries for {len(kernels)} kernels")
    weights: list[Any] = []
    for number, kernel in enumerate(kernels):
        given = {name: values[number] for name, values in each.items()}
        weights.append(Convolution.of(kernel, image, circular=circular, **given))
        image = weights[-1].places
    made = Network.from_weights([*weights, *head], None, activation)
    return replace(made, input_shape=(weights[0].channels, *weights[0].image))
