"""Convolutions as linear maps: products, matrix and digest say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lipcert import InvalidInput, Network
from lipcert.model.convolution import Convolution

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((3, 2, 3, 3), (5, 6), {}),
    "valid": ((3, 2, 3, 3), (5, 6), {"padding": 0}),
    "stride": ((4, 2, 3, 3), (7, 6), {"stride": 2, "padding": 1}),
    "uneven": ((2, 2, 2, 4), (6, 9), {"stride": (1, 3), "padding": ((0, 1), (2, 1))}),
    "dilation": ((2, 3, 3, 2), (8, 7), {"dilation": (2, 3), "padding": 2}),
    "groups": ((6, 2, 3, 3), (4, 4), {"groups": 3}),
    "depthwise": ((4, 1, 3, 3), (6, 5), {"groups": 4, "stride": 2, "padding": 1}),
    "circular": ((3, 2, 3, 3), (5, 4), {"circular": True}),
    "circular stride": ((3, 2, 3, 5), (6, 8), {"circular": True, "stride": 2}),
    "one axis": ((3, 2, 4), (9,), {"stride": 2, "padding": 1}),
    "window": ((5, 2, 4, 4), (4, 4), {"padding": 0}),
}


@pytest.fixture(params=CASES)
def convolution(request: pytest.FixtureRequest) -> Convolution:
    shape, image, options = CASES[request.param]
    return Convolution.of(np.random.default_rng(len(request.param)).standard_normal(shape), image, **options)


def as_torch(one: Convolution, rows: Any) -> Any:
    """The images convolved by another library."""
    pictures = torch.as_tensor(rows).reshape(len(rows), one.channels, *one.image)
    pads = [side for pair in one.padding[::-1] for side in pair]
    padded = torch.nn.functional.pad(pictures, pads, mode="circular" if one.circular else "constant")
    apply = torch.nn.functional.conv1d if one.axes == 1 else torch.nn.functional.conv2d
    kernel = torch.as_tensor(np.array(one.kernel))
    found = apply(padded, kernel, stride=one.stride, dilation=one.dilation, groups=one.groups)
    return found.reshape(len(rows), -1).numpy()


def test_products_and_matrix_are_those_of_another_library(convolution: Convolution) -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((3, convolution.shape[1]))
    matrix = convolution.sparse()
    assert matrix.has_canonical_format
    np.testing.assert_allclose(convolution.forward(rows), as_torch(convolution, rows), atol=1e-12)
    np.testing.assert_allclose(convolution.forward(rows), rows @ matrix.T, atol=1e-12)
    assert (abs(matrix) != convolution.magnitude().sparse()).nnz == 0
    assert np.diff(matrix.indptr).max() <= convolution.fan_in


def test_the_digest_is_that_of_the_matrix(convolution: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    as_kernel, as_matrix = Network.from_weights([convolution]), Network.from_weights([convolution.sparse()])
    assert as_kernel.digest == as_matrix.digest
    assert as_kernel.layers[0].convolution is convolution
    assert as_matrix.layers[0].convolution is None
    monkeypatch.setattr("lipcert.model.weights.MOST_ENTRIES", 1)
    other = Convolution.of(convolution.kernel + 1e-9, **{name: getattr(convolution, name) for name in OPTIONS})
    again = [Network.from_weights([one]).digest for one in (convolution, convolution, other)]
    assert again[0] == again[1] != again[2]
    assert as_kernel.digest not in again


OPTIONS = ("image", "stride", "padding", "dilation", "groups", "circular")


def test_a_matrix_that_is_too_large_is_not_made() -> None:
    huge = Network.from_weights([Convolution.of(np.ones((64, 64, 3, 3)), (224, 224))])
    assert huge.sizes == (64 * 224 * 224, 64 * 224 * 224)
    assert len(huge.digest) == 64
    with pytest.raises(InvalidInput, match="global bound"):
        _ = huge.layers[0].weight


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 2), {}, "kernel"),
        ((3, 2, 3, 3), {"groups": 2}, "groups"),
        ((2, 2, 3, 3), {"stride": 0}, "stride"),
        ((2, 2, 3, 3), {"dilation": 1.5}, "dilation"),
        ((2, 2, 3, 3), {"padding": -1}, "padding"),
        ((2, 2, 7, 7), {"padding": 0}, "fit"),
        ((2, 2, 7, 7), {"circular": True}, "window"),
        ((2, 2, 3, 3), {"circular": True, "padding": 6}, "circular padding"),
    ],
)
def test_arguments_that_make_no_sense_are_named(shape: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Convolution.of(np.ones(shape), (5, 5), **options)
