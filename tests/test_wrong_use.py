"""Nonsense in place of arguments: an error of ours that names the argument, wherever it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput

NET = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0], [0.0, 1.0]]])
BALL = lc.Ball([0.0, 0.0], 1.0)
ANY: Any = lc


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ANY.Network.from_weights(None), "weights must be a list"),
        (lambda: ANY.Network.from_weights(3), "weights must be a list"),
        (lambda: ANY.Network.from_weights([[[1.0]]], 3), "biases must be a list"),
        (lambda: ANY.Network.from_weights([[[1.0]], [[1.0]]], activation=3), "activation must be a list"),
        (lambda: ANY.Network.from_weights([[[10**400]]]), "weight of layer 1 must be"),
        (lambda: ANY.Network.from_weights([np.ma.array([[1.0]], mask=[[True]])]), "masked"),
        (lambda: ANY.certify(NET, BALL, inputs=np.ma.array([0, 1], mask=[False, True])), "inputs .*masked"),
        (lambda: ANY.certify(NET, BALL, layers=("a", "b")), "layers must be"),
        (lambda: ANY.certify(NET, BALL, enclosures=[3]), "enclosures must be values"),
        (lambda: ANY.lower_bound(NET, None), "bounded region"),
        (lambda: ANY.lower_bound(NET, BALL, samples=10**400), "samples must be a whole number"),
        (lambda: ANY.lower_bound(NET, BALL, samples=-1), "samples must be a whole number"),
        (lambda: ANY.sensitivity(NET, 3), "region must be"),
        (lambda: ANY.verify(NET, 3), "a Network and a Certificate"),
        (lambda: ANY.verify(3, 3), "a Network and a Certificate"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], label="a"), "label must be from 0 to 1"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], label=0.5), "label must be from 0 to 1"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], radii="a"), "radii must be"),
    ],
)
def test_wrong_use_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()


def test_one_radius_and_whole_numbers_of_any_kind_will_do() -> None:
    found = lc.certified_radius(NET, [0.0, -1.0], label=np.float64(0.0), radii=0.1)  # type: ignore[arg-type]
    assert found.label == 0


def test_regions_as_large_as_floats_raise_no_warning() -> None:
    for region in (lc.Box([-1e308] * 2, [1e308] * 2), lc.Ball([0.0, 0.0], 1e308), lc.Ball([1e308, 0.0], 1e308)):
        bound = lc.certify(NET, region, lc.ClosedForm()).bound
        assert lc.lower_bound(NET, region, samples=50, steps=3).value <= bound
