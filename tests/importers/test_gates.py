"""Activations that are spelled out as products, where x is a sum with one number for all elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lipcert as lc

X = np.random.default_rng(0).normal(size=(100, 3)) * 3.0
SPELLED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "silu": (lambda x: x * torch.sigmoid(x), "silu"),
    "gelu": (lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476)), "gelu"),
    "hardswish": (lambda x: x * torch.clamp(x + 3, 0, 6) / 6, "hardswish"),
    "softsign": (lambda x: x / (1 + x.abs()), "softsign"),
    "square": (lambda x: (2 * x) * (3 * x), "square"),
    "tanhshrink": (lambda x: x - torch.tanh(x), "tanhshrink"),
    "tanhshrink, scaled": (lambda x: 2 * torch.tanh(0.5 * x) - x + 3, "tanhshrink"),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "another zero": lambda x: (x + 1) * torch.sigmoid(x + 1.0001),
    "erf beside the zero": lambda x: 0.5 * x * (1 + torch.erf((x + 1e-9) * 0.7071067811865476)),
    "two zeros": lambda x: x * (x + 1),
    "clip beside the zero": lambda x: x * torch.clamp(x + 3.5, 0, 6) / 6,
}


class Model(nn.Module):
    """A function of a linear layer's output plus 1/4."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after, self.function = nn.Linear(3, 4, bias=False), nn.Linear(4, 2), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.function(self.before(x) + 0.25))


@pytest.mark.parametrize("name", SPELLED)
def test_a_number_that_is_added_to_all_elements_does_not_hide_an_activation(name: str) -> None:
    function, row = SPELLED[name]
    module = Model(function).double().eval()
    network = lc.load(module, input_shape=(3,))
    assert network.sizes == (3, 4, 2)
    assert f", {row}," in repr(network)
    with torch.no_grad():
        assert network(X) == pytest.approx(module(torch.tensor(X)).numpy(), rel=1e-12, abs=1e-13)


def test_a_sum_with_another_slope_is_no_tanhshrink() -> None:
    network = lc.load(Model(lambda x: 1.5 * x - torch.tanh(x)).eval(), input_shape=(3,))
    assert "tanhshrink" not in repr(network)


@pytest.mark.parametrize("name", OTHERS)
def test_products_with_another_zero_are_refused(name: str) -> None:
    with pytest.raises(lc.UnreadableModel, match="no activation that is known"):
        lc.load(Model(OTHERS[name]).eval(), input_shape=(3,))
