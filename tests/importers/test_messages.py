"""Models that people bring and lipcert does not read: the message names the reason and the next step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lipcert as lc

pytest.importorskip("torch")
import torch
from torch import nn


class Calling(nn.Module):
    """A module whose forward is a function of its part and the input."""

    def __init__(self, part: Any, forward: Any) -> None:
        super().__init__()
        self.part, self.call = part, forward

    def forward(self, x: Any) -> Any:
        return self.call(self.part, x)


class TwoInputs(nn.Module):
    def forward(self, x: Any, z: Any) -> Any:
        return torch.cat([x, z], 1)


def recurrent(part: Any) -> Any:
    return Calling(part, lambda layer, x: layer(x)[0][:, -1])


def attention() -> Any:
    return Calling(nn.Identity(), lambda _, x: nn.functional.scaled_dot_product_attention(x, x, x))


def decided() -> Any:
    return Calling(nn.Linear(4, 2), lambda layer, x: layer(x) if x.sum() > 0 else -layer(x))


def broken() -> Any:
    module = nn.Sequential(nn.Linear(4, 2))
    nn.init.constant_(module[0].weight, float("nan"))  # type: ignore[arg-type]
    return module


REFUSED = {
    "lstm": (lambda: recurrent(nn.LSTM(4, 3)), (5, 4), "gates multiply signals, which is not bounded yet; load the"),
    "gru": (lambda: recurrent(nn.GRU(4, 3)), (5, 4), "gates multiply signals, which is not bounded yet; load the"),
    "rnn": (lambda: recurrent(nn.RNN(4, 3)), (5, 4), r"torch\.onnx\.export\(module, x, 'model\.onnx', dynamo=True\)"),
    "attention": (attention, (5, 4), "attention multiplies signals, which is not bounded yet; load the part"),
    "glu": (lambda: nn.Sequential(nn.Linear(4, 4), nn.GLU()), (4,), "it multiplies two signals"),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8), (5, 4), "attention multiplies signals"),
    "branch": (decided, (4,), r"torch\.onnx\.export\(module, x, 'model\.onnx', dynamo=True\)"),
    "exported": (lambda: torch.export.export(broken(), (torch.zeros(1, 4),)).module(), (4,), "pass the nn.Module"),
    "program": (lambda: torch.export.export(broken(), (torch.zeros(1, 4),)), (4,), "pass the nn.Module"),
    "parallel": (lambda: nn.DataParallel(nn.Linear(4, 2)), (4,), r"pass its \.module"),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 4)), (3,), "takes whole numbers"),
    "batch": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
        (4,),
        "track_running_stats=True",
    ),
    "nan": (broken, (4,), r"0\.weight: it holds 8 NaN"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_the_reason_and_the_next_step_are_said(kind: str) -> None:
    make, shape, expected = REFUSED[kind]
    model = make()
    model = model.eval() if isinstance(model, nn.Module) and kind != "exported" else model
    with pytest.raises(lc.UnreadableModel, match=expected):
        lc.load(model, input_shape=shape)


def test_a_fixed_value_without_its_batch() -> None:
    with pytest.raises(lc.UnreadableModel, match="with a batch of one where it has one"):
        lc.load(TwoInputs().eval(), input_shape=(4,), fixed={"z": np.zeros(3)})


@pytest.mark.parametrize("question", [lc.certify, lc.reach, lc.lower_bound, lc.sensitivity])
def test_a_module_in_the_place_of_a_network(question: Any) -> None:
    with pytest.raises(lc.InvalidInput, match=r"got Linear; read it with lipcert\.load"):
        question(nn.Linear(4, 2), lc.Ball([0.0] * 4, 0.1))
    with pytest.raises(lc.InvalidInput, match=r"got Linear; read it with lipcert\.load"):
        lc.certified_radius(nn.Linear(4, 2), [0.0] * 4)  # type: ignore[arg-type]
