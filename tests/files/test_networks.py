"""Networks on disk: each comes back with the same digest, and what is damaged is refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.cli import main
from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from networks import ROWS, STEEP, random_network

SNAKE = lc.piecewise_linear([-1.0, 0.0, 2.0], [0.0, 1.0, -0.5, 2.0])


def mixed() -> lc.Network:
    """Layers of several activations, parameters per neuron, a group of one neuron among others."""
    slopes = np.array([0.1, 0.25, -0.5, 1.0, 3.0])
    several = [SNAKE, activation("elu", alpha=0.7), "tanh", activation("elu", alpha=0.7), SNAKE]
    return random_network(1, (3, 5, 5, 5, 2), [activation("prelu", negative_slope=slopes), several, "sin"])


def convolutional() -> lc.Network:
    rng = np.random.default_rng(0)
    first = lc.Convolution.of(
        rng.standard_normal((4, 1, 3, 3)), (6, 5), stride=(2, 1), padding=[(1, 0), (1, 1)], groups=2
    )
    size, count = first.shape
    circular = lc.Convolution.of(rng.standard_normal((2, 4, 3, 3)), first.places, padding=1, circular=True)
    last = sparse.random_array((3, circular.shape[0]), density=0.3, rng=rng, format="csr")
    network = lc.Network.from_weights([first, circular, last], [rng.standard_normal(size), None, None], "relu")
    return replace(network, input_shape=(2, count // 10, 5))


CASES: dict[str, Callable[[], lc.Network]] = {
    "rows": lambda: random_network(0, (2, *([4] * (len(ROWS) + len(STEEP))), 1), [*ROWS, *STEEP]),
    "mixed": mixed,
    "convolutional": convolutional,
    "linear": lambda: lc.Network.from_weights([[[-0.0, 1e-320], [1e300, 0.1]]]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_network_comes_back_with_its_digest(case: str, tmp_path: Path) -> None:
    network, path = CASES[case](), tmp_path / "network.npz"
    network.save(path)
    again = lc.load(path)
    assert again.digest == network.digest
    assert again.input_shape == network.input_shape
    x = np.random.default_rng(1).standard_normal((5, network.inputs))
    np.testing.assert_array_equal(again(x), network(x))
    for one, two in zip(again.layers, network.layers, strict=True):
        assert type(one.linear) is type(two.linear)
    written = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == written


def test_what_was_loaded_is_verified_on_the_command_line_later(tmp_path: Path) -> None:
    network = mixed()
    network.save(tmp_path / "network.npz")
    lc.certify(network, lc.Ball([0.1, 0.2, -0.3], 0.2), lc.ClosedForm()).save(tmp_path / "a.json")
    paths = [str(tmp_path / name) for name in ("a.json", "network.npz", "same.npz")]
    ended = []
    for arguments in (["inspect", paths[1], "--save", paths[2]], ["verify", paths[0], paths[2]]):
        with pytest.raises(SystemExit) as outcome:
            main(arguments)
        ended.append(outcome.value.code)
    random_network(2, (3, 5, 2)).save(paths[2])
    with pytest.raises(SystemExit) as outcome:
        main(["verify", *paths[::2]])
    assert [*ended, outcome.value.code] == [0, 0, 1]


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    pytest.importorskip("flint")
    squash = lc.define_activation("squash", np.tanh, lambda x: 1 - np.tanh(x) ** 2, [0], (0, 0))
    network = random_network(0, (2, 3, 1), squash)
    with pytest.raises(InvalidInput, match="declared activations cannot be saved"):
        network.save(tmp_path / "network.npz")
    with pytest.raises(InvalidInput, match=r"must end with \.npz"):
        mixed().save(tmp_path / "network.onnx")
    assert not list(tmp_path.iterdir())


def _without(name: str) -> Callable[[dict[str, Array]], Any]:
    return lambda arrays: arrays.pop(name)


DAMAGE: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda a: a.update(W1=np.nextafter(a["W1"], 9.0)), "does not match its digest"),
    (lambda a: a.update(b2=a["b2"].astype(np.float32)), "b2 must be of float64"),
    (lambda a: a.update(format="lipcert network 7"), "lipcert network 7"),
    (lambda a: a.update({"activation1.0": "nonsense"}), "nonsense"),
    (lambda a: a.update({"activation1.0.negative_slope": np.ones(4)}), "are not for its neurons"),
    (lambda a: a.update({"activation2.0.neurons": np.zeros(2, int)}), "not each in one group"),
    (lambda a: a.update({"activation2.0.neurons": np.array([0.0, 4.0])}), "are not for its neurons"),
    (lambda a: a.update(input_shape=np.array([2, 2])), "input_shape does not go with 3 inputs"),
    (lambda a: a.update(W9=np.eye(2)), "'W9', which belongs to no layer"),
    (_without("b4"), "which belongs to no layer"),
    (_without("W3"), "it has no array 'W3'"),
    (_without("activation3.0"), "which belongs to no layer|do not go with the activations"),
    (_without("activation1.0.negative_slope"), "parameters"),
    (_without("digest"), "no array 'digest'"),
]


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_damaged_files_are_refused(number: int, tmp_path: Path) -> None:
    damage, message = DAMAGE[number]
    path = tmp_path / "network.npz"
    mixed().save(path)
    with np.load(path) as content:
        arrays: dict[str, Any] = dict(content)
    damage(arrays)
    np.savez(path, **arrays)
    with pytest.raises(UnreadableModel, match=message):
        lc.load(path)


def test_an_activation_in_the_argument_is_refused(tmp_path: Path) -> None:
    mixed().save(tmp_path / "network.npz")
    with pytest.raises(InvalidInput, match="says which activations it has"):
        lc.load(tmp_path / "network.npz", "relu")
