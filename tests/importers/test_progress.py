"""Loading says what it is doing, and makes no matrix of a convolution to compare with the model."""

from __future__ import annotations

import pytest

import lipcert as lc
from lipcert.model.convolution import Convolution

torch = pytest.importorskip("torch")


def test_loading_says_what_it_does_and_makes_no_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Convolution) -> None:
        raise AssertionError("a matrix was made")

    nn = torch.nn
    lines: list[str] = []
    module = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).eval()
    monkeypatch.setattr(Convolution, "sparse", refuse)
    network = lc.load(module, input_shape=(2, 12, 12), progress=lines.append)
    assert all(layer.convolution is not None for layer in network.layers)
    assert "reading the model: layer 1" in lines
    assert any(line.startswith("comparing with PyTorch: point 1 of") for line in lines)
