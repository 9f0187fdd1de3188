"""Models as people write them: operations and ways of calling, in PyTorch and ONNX, and traps for each of them."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

import lipcert as lc
from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.model.arrays import Array
from onnx_graphs import model_of

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from modules import GroupSort2, Wrapped  # noqa: E402


def fn(function: Callable[..., Any]) -> Any:
    """A function as a module."""
    return Wrapped(lambda _, x: function(x))


class MaxMin(nn.Module):
    def forward(self, x: Any) -> Any:
        a, b = x.chunk(2, 1)
        return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)


class Sorted(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sort(x.reshape(-1, 2))[0].reshape(x.shape)


def dense(*middle: Any) -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Linear(4, 2)).eval()


def _snake(x: Any) -> Any:
    return x + torch.sin(2.0 * x) ** 2 / 2.0


POINTWISE: dict[str, tuple[Any, str]] = {
    "softsign": (nn.Softsign(), "softsign"),
    "spelled softsign": (fn(lambda x: 2.0 * x / (3.0 + x.abs() / 2.0)), "softsign"),
    "tanhshrink": (nn.Tanhshrink(), "tanhshrink"),
    "softshrink": (nn.Softshrink(0.3), "softshrink"),
    "threshold": (nn.Threshold(0.2, 0.2), "threshold"),
    "cos": (fn(torch.cos), "cos"),
    "erf": (fn(torch.erf), "erf"),
    "x²": (fn(lambda x: x**2), "square"),
    "x·x": (fn(lambda x: x * x), "square"),
    "x³": (fn(lambda x: x.pow(3)), "cube"),
    "snake": (fn(_snake), "cos, identity"),
    "quick gelu": (fn(lambda x: x * torch.sigmoid(1.702 * x)), "silu"),
    "abs": (fn(torch.abs), "leaky_relu"),
}
EXPORTED = ("softsign", "cos", "erf", "x²", "x·x", "x³", "snake")
"""Of the others PyTorch's exporter makes what is tested elsewhere, choices that are refused, or nothing."""
IMAGES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "transposed": (nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 5)),
    "transposed 1d": (nn.ConvTranspose1d(2, 3, 3, stride=2, dilation=2), (2, 5)),
    "transposed 3d": (nn.ConvTranspose3d(1, 2, 2, stride=2), (1, 2, 3, 2)),
    "nearest": (nn.Upsample(scale_factor=2), (1, 3, 4)),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 4)),
    "corners": (nn.Upsample(size=(6, 12), mode="bilinear", align_corners=True), (1, 3, 4)),
    "linear": (nn.Upsample(scale_factor=3, mode="linear"), (2, 5)),
    "shuffle": (nn.PixelShuffle(2), (8, 3, 2)),
    "unshuffle": (nn.PixelUnshuffle(2), (2, 4, 6)),
    "same, dilated": (nn.Conv2d(1, 2, 3, padding="same", dilation=2), (1, 6, 6)),
}


def same(network: lc.Network, module: Any, shape: tuple[int, ...], size: float = 1.0) -> None:
    rng = np.random.default_rng(9)
    with torch.no_grad():
        for _ in range(5):
            x = size * rng.normal(size=shape)
            expected = module(torch.tensor(x[None], dtype=next(module.parameters(), torch.zeros(1)).dtype)).numpy()
            np.testing.assert_allclose(network(x.ravel()), expected.ravel(), rtol=2e-4, atol=2e-5)


def exported(module: Any, shape: tuple[int, ...], path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, *shape),), str(path), dynamo=False, opset_version=17)
    return path


@pytest.mark.parametrize("name", POINTWISE)
def test_functions_of_one_number(name: str, tmp_path: Path) -> None:
    function, row = POINTWISE[name]
    module = dense(function)
    network = lc.load(module)
    assert network.layers[0].neurons is not None
    assert network.layers[0].neurons.describe() == row
    same(network, module, (3,))
    if name in EXPORTED:
        same(lc.load(exported(module, (3,), tmp_path / "m.onnx")), module, (3,))


@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    layer, shape = IMAGES[name]
    module = nn.Sequential(layer, nn.ReLU(), nn.Flatten()).eval()
    same(lc.load(module, input_shape=shape), module, shape)
    same(lc.load(exported(module, shape, tmp_path / "m.onnx")), module, shape)


def test_interpolations_that_have_no_export_or_no_whole_factor() -> None:
    def resized(mode: str, **options: Any) -> Any:
        return fn(lambda x: F.interpolate(x, mode=mode, **options)).eval()

    for mode, size in (("nearest-exact", (6, 12)), ("nearest-exact", (5, 4)), ("nearest", (5, 4)), ("area", (6, 8))):
        module = resized(mode, size=size)
        same(lc.load(module, input_shape=(1, 3, 4)), module, (1, 3, 4))
    with pytest.raises(UnreadableModel, match="only enlarging by whole factors"):
        lc.load(resized("bilinear", size=(2, 2)), input_shape=(1, 3, 4))
    with pytest.raises(UnreadableModel, match="only enlarging by whole factors"):  # 2·3 places, but not at halves
        lc.load(resized("bilinear", scale_factor=2.1), input_shape=(1, 3, 3))


NODES: dict[str, tuple[str, list[str], dict[str, Any], dict[str, Any], list[int], int]] = {
    "depth DCR": ("DepthToSpace", ["x"], {"blocksize": 2}, {}, [1, 8, 2, 3], 17),
    "space": ("SpaceToDepth", ["x"], {"blocksize": 2}, {}, [1, 2, 4, 6], 17),
    "shrink": ("Shrink", ["x"], {"lambd": 0.5, "bias": 0.5}, {}, [1, 5], 17),
    "sorted": ("TopK", ["x", "k"], {"axis": 1, "largest": 0}, {"k": np.array([2])}, [1, 2], 17),
    "sorted down": ("TopK", ["x", "k"], {"axis": 1}, {"k": np.array([2])}, [1, 2, 5], 17),
    "upsample": ("Upsample", ["x", "s"], {}, {"s": np.array([1, 1, 2, 3], np.float32)}, [1, 1, 2, 3], 9),
    **{
        f"resize {mode} {place} {near}": (
            "Resize",
            ["x", "", "s"],
            {"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": near},
            {"s": np.array([1, 1, 3, 2], np.float32)},
            [1, 1, 4, 3],
            17,
        )
        for mode, place, near in [
            ("nearest", "half_pixel", "round_prefer_floor"),
            ("nearest", "half_pixel", "round_prefer_ceil"),
            ("nearest", "asymmetric", "floor"),
            ("linear", "half_pixel", "floor"),
            ("linear", "align_corners", "floor"),
            ("linear", "pytorch_half_pixel", "floor"),
        ]
    },
    "transposed": (
        "ConvTranspose",
        ["x", "W"],
        {"strides": [2, 1], "pads": [1, 0, 0, 2], "output_padding": [1, 0]},
        {"W": np.random.default_rng(0).normal(size=(2, 3, 3, 3)).astype(np.float32)},
        [1, 2, 3, 4],
        17,
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_operators(name: str) -> None:
    """Reading compares with onnxruntime, so that what is read is right."""
    kind, inputs, attributes, arrays, shape, opset = NODES[name]
    results = ["y", "places"] if kind == "TopK" else ["y"]
    network = lc.load(
        model_of([helper.make_node(kind, inputs, results, **attributes)], arrays, shape=shape, opset=opset)
    )
    assert network.inputs == math.prod(shape)


TRAPS: dict[str, tuple[Any, str]] = {
    "hardshrink": (nn.Hardshrink(), "jumps at its limits"),
    "threshold": (nn.Threshold(0.2, 0.0), "jumps from 0.0 to 0.2"),
    "layer norm": (nn.LayerNorm(4), "divides by the spread of its own input"),
    "exp": (fn(torch.exp), "unknown operation"),
    "log": (fn(lambda x: torch.log(torch.sigmoid(x))), "unknown operation"),
    "choice": (fn(lambda x: torch.where(x > 0, x, 0.1 * x)), "2 operations have no exact translation"),
    "comparison": (fn(lambda x: x * (x > 0)), "gt of shape .*it jumps where its operand"),
    "four sorted": (fn(lambda x: x.sort(-1)[0]), "only the sorting of pairs"),
    "quotient": (fn(lambda x: x / (1.0 + x * x)), "divides by a value that depends"),
    "not quite softsign": (fn(lambda x: x / (1.0 + (x + 0.1).abs())), "divides by a value that depends"),
    "softsign with a pole": (fn(lambda x: x / (1.0 - x.abs())), "divides by a value that depends"),
    "x⁴": (fn(lambda x: x**4), "only the powers 1, 2 and 3"),
    "√x": (fn(lambda x: x**0.5), "only the powers 1, 2 and 3"),
    "product": (fn(lambda x: x * (x + 1.0)), "both depend on the input"),
    "positions": (fn(lambda x: x[:, :2].sort(-1)[1].to(x.dtype) + x[:, :2]), "positions of sorted values"),
    "only positions": (fn(lambda x: x[:, :2].sort(-1).indices), "positions of sorted values|rounds|float"),
    "bicubic": (fn(lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic")), "of interpolations only"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_what_only_looks_like_it_is_refused(name: str) -> None:
    function, reason = TRAPS[name]
    with pytest.raises(UnreadableModel, match=reason):
        lc.load(nn.Sequential(nn.Linear(3, 4), function).eval())


@pytest.mark.parametrize(
    ("node", "arrays", "reason"),
    [
        (("Shrink", ["x"], {"lambd": 0.5, "bias": 0.0}), {}, "jumps at its limits"),
        (("ThresholdedRelu", ["x"], {"alpha": 1.0}), {}, "unknown operator"),
        (("TopK", ["x", "k"], {"axis": 1}), {"k": np.array([2])}, "only sorting all of them"),
        (("Pow", ["x", "p"], {}), {"p": np.array([2.0, 3.0, 2.0, 1.0], np.float32)}, "its exponents differ"),
        (("Pow", ["x", "p"], {}), {"p": np.array(0.5, np.float32)}, "only the powers"),
        (("Reciprocal", ["x"], {}), {}, "divides by a value"),
        (("LayerNormalization", ["x", "s"], {}), {"s": np.ones(4, np.float32)}, "spread of its own input"),
        (("Log", ["x"], {}), {}, "unknown operator"),
        (("Resize", ["x", "", "s"], {}), {"s": np.array([1, 1.5], np.float32)}, "only enlarging by whole factors"),
        (
            ("Resize", ["x", "", "s"], {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}),
            {"s": np.array([1, 2], np.float32)},
            "'asymmetric' and 'ceil' is not known",
        ),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_operators_that_are_refused(node: Any, arrays: dict[str, Any], reason: str) -> None:
    kind, inputs, attributes = node
    results = ["y", "places"] if kind == "TopK" else ["y"]
    with pytest.raises(UnreadableModel, match=reason):
        lc.load(model_of([helper.make_node(kind, inputs, results, **attributes)], arrays, shape=(1, 4)))


def test_a_forward_that_sorts_only_while_it_is_traced_is_seen() -> None:
    class Trap(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if type(x) is torch.Tensor else torch.sort(x.reshape(2, 2))[0].reshape(x.shape)

    with pytest.raises(UnreadableModel, match="the exported program is not what the module does"):
        lc.load(Trap().eval(), input_shape=(4,))


def orthogonal(outputs: int, inputs: int) -> Any:
    layer = nn.Linear(inputs, outputs).double()
    nn.init.orthogonal_(layer.weight)
    return layer


@pytest.mark.parametrize("make", [MaxMin, GroupSort2, Sorted])
def test_orthogonal_networks_that_sort_are_seen_to_be_1_lipschitz(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    parts = [orthogonal(20, 8), make(), orthogonal(20, 20), make(), orthogonal(20, 20), make(), orthogonal(5, 20)]
    module = nn.Sequential(*parts).eval()
    network = lc.load(module)
    same(network, module, (8,))
    assert lc.certify(network, method=lc.Scalar()).bound <= 1.0 + 1e-6


def test_a_maximum_with_the_minimum_of_other_pairs_is_not_a_sorting() -> None:
    """Then both cannot be one rotation: max(a, b) and min(a, c) of (1, 0, 0) move by more than the input."""
    module = fn(lambda x: torch.cat([torch.maximum(x[:, :1], x[:, 1:2]), torch.minimum(x[:, :1], x[:, 2:])], 1)).eval()
    network = lc.load(module, input_shape=(3,))
    same(network, module, (3,))
    assert lc.certify(network).bound >= math.sqrt(2.0) - 1e-9


class Mixed(nn.Module):
    """A mask, numbers with defaults, and a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Any, mask: Any, scale: float = 2.0, flag: bool = True) -> Any:
        z = torch.relu(self.first(x)) * mask
        return {"logits": self.last(z) * scale if flag else z, "features": z}


def test_fixed_inputs_and_chosen_outputs() -> None:
    torch.manual_seed(1)
    module = Mixed().eval()
    mask = torch.tensor([1.0, 0.0, 0.5, 2.0])
    network = lc.load(module, fixed={"mask": mask.numpy()}, output="logits")
    x = torch.randn(1, 4)
    with torch.no_grad():
        np.testing.assert_allclose(network(x.numpy()[0]), module(x, mask)["logits"].numpy()[0], rtol=1e-5, atol=1e-6)
        other = lc.load(module, fixed={"mask": mask, "flag": False}, output="logits")
        np.testing.assert_allclose(other(x.numpy()[0]), module(x, mask)["features"].numpy()[0], rtol=1e-5, atol=1e-6)
    assert module.first.weight.requires_grad
    assert not module.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takes 2 inputs .x, mask.; a network has one: give the others as fixed"),
        ({"fixed": {"mask": torch.ones(4)}}, "a dictionary with 'logits', 'features'.*choose one with output"),
        ({"fixed": {"mask": torch.ones(4)}, "output": "nope"}, "there is no output 'nope' in it"),
        ({"fixed": {"nask": 1.0}}, "fixed names nask; forward takes x, mask, scale, flag"),
        ({"fixed": {"mask": object()}}, "must be an array, a tensor, a number"),
        ({"fixed": [1]}, "fixed must be a dictionary"),
        ({"fixed": {"mask": torch.ones(4)}, "output": 1.5}, "output must be the name or the number"),
    ],
)
def test_fixed_inputs_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises((UnreadableModel, InvalidInput), match=message):
        lc.load(Mixed().eval(), **options)


@dataclass
class Output:
    logits: Any
    features: Any


def test_tuples_dataclasses_spare_arguments_and_sizes() -> None:
    class Free(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any, *args: Any, mask: Any = None, **kwargs: Any) -> Any:
            if x.dim() != 2 or x.shape[1] != 4 or len(x) < 1:
                raise ValueError("wrong shape")
            y = self.layer(x) + torch.zeros(x.shape[0], 3) + x.size(0)
            return Output(y if mask is None else y * mask, x)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x).view(x.shape[0], -1), x

    module = Free().eval()
    network = lc.load(module, input_shape=(4,), output="logits")
    x = torch.randn(1, 4)
    with torch.no_grad():
        np.testing.assert_allclose(network(x.numpy()[0]), module(x).logits.numpy()[0], rtol=1e-5, atol=1e-6)
    assert lc.load(Both().eval(), output=0).outputs == 3
    assert lc.load(Both().eval(), output=1).outputs == 4


def test_a_module_that_looks_at_sizes_beyond_the_input_still_faces_the_comparison() -> None:
    """Sizes are those of a batch of one; what is read is what runs."""

    class Batch(nn.Module):
        def forward(self, x: Any) -> Any:
            return 2.0 * x if x.shape[0] == 1 else x

    network = lc.load(Batch().eval(), input_shape=(3,))
    assert network(np.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_old_weight_norm_is_read_and_left_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2)).eval()
    before = module[0].weight
    same(lc.load(module), module, (3,))
    assert module[0].weight.shape == before.shape
    assert list(module[0]._forward_pre_hooks.values())


def test_quantised_modules_are_refused_with_a_sentence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), {nn.Linear})
    with pytest.raises(UnreadableModel, match=r"quantised parts \(0.*pass the module as it was before"):
        lc.load(module)


class Cosine(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cos(x) * 1.0


def test_registered_classes_are_read_as_their_activation_and_compared() -> None:
    wave = lc.define_activation("my_cos", np.cos, lambda v: -np.sin(v), [0.5 * np.pi, 1.5 * np.pi], period=2 * np.pi)
    lc.register_activation(wave, torch=Cosine)
    module = dense(Cosine())
    network = lc.load(module)
    assert network.layers[0].neurons is not None
    assert network.layers[0].neurons.describe() == wave.name
    assert network.digest.startswith("declared:")
    same(network, module, (3,))

    class Liar(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cos(x) * 1.01

    lc.register_activation(wave, torch=Liar)
    with pytest.raises(UnreadableModel, match="the import is not faithful"):
        lc.load(dense(Liar()))

    class Child(Cosine):  # not registered itself
        def forward(self, x: Any) -> Any:
            return torch.sin(x)

    found = lc.load(dense(Child()))
    assert found.layers[0].neurons is not None
    assert found.layers[0].neurons.describe() == "sin"


@pytest.mark.parametrize(("torch_class", "name"), [(nn.ReLU, None), (3, None), (None, ""), (None, 4)])
def test_what_cannot_be_registered(torch_class: Any, name: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a"):
        lc.register_activation(lc.activation("cos"), torch=torch_class, onnx=name)


def function_model(body: list[Any]) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    wave = helper.make_function("mine", "Wave", ["v"], ["w"], body, opsets[:1])
    nodes = [helper.make_node("Gemm", ["x", "W"], ["a"]), helper.make_node("Wave", ["a"], ["y"], domain="mine")]
    entry, result = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3]), ("y", None)))
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32), "W")
    graph = helper.make_graph(nodes, "g", [entry], [result], [weight])
    return helper.make_model(graph, opset_imports=opsets, functions=[wave], ir_version=9)


def test_registered_functions_of_onnx_models() -> None:
    pytest.importorskip("onnxruntime")
    lc.register_activation(lc.activation("cos"), onnx="mine:Wave")
    network = lc.load(function_model([helper.make_node("Cos", ["v"], ["w"])]))
    assert network.layers[0].neurons is not None
    assert network.layers[0].neurons.describe() == "cos"
    with pytest.raises(UnreadableModel, match="the import is not faithful"):
        lc.load(function_model([helper.make_node("Sin", ["v"], ["w"])]))


def test_half_precision_is_read_as_the_numbers_that_are_stored() -> None:
    dtype = np.float16
    rng = np.random.default_rng(2)
    arrays = {name: rng.normal(size=size).astype(dtype) for name, size in (("W", (4, 3)), ("b", 4), ("V", (2, 4)))}
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Gemm", ["r", "V"], ["y"], transB=1),
    ]
    network = lc.load(model_of(nodes, arrays, kind=TensorProto.FLOAT16))
    np.testing.assert_array_equal(network.layers[0].weight, arrays["W"].astype(float))
    np.testing.assert_array_equal(network.layers[1].weight, arrays["V"].astype(float))
    nodes[1] = helper.make_node("Selu", ["a"], ["r"])
    assert lc.load(model_of(nodes, arrays, kind=TensorProto.FLOAT16)).depth == 2


def test_onnx_inputs_that_are_fixed_and_outputs_that_are_chosen() -> None:
    entries = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in ("x", "mask")]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "z")]
    nodes = [helper.make_node("Mul", ["x", "mask"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", entries, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    mask = np.array([[1.0, 0.0, 3.0]], dtype=np.float32)
    assert lc.load(model, fixed={"mask": mask}, output="y")(np.ones(3)).tolist() == [1.0, 0.0, 3.0]
    assert lc.load(model, fixed={"mask": mask}, output=1)(-np.ones(3)).tolist() == [0.0, 0.0, 0.0]
    for options, message in (
        ({"output": "y"}, "2 inputs .x, mask.; a network has one: give all but one as fixed"),
        ({"fixed": {"mask": mask}}, "2 outputs .y, z.; a network has one: choose one with output"),
        ({"fixed": {"mask": mask[0]}, "output": "y"}, "must be of shape"),
        ({"fixed": {"mask": mask + 0.1j}, "output": "y"}, "must be numbers of type"),
        ({"fixed": {"mask": mask.astype(float) + 1e-12}, "output": "y"}, "got others"),
        ({"fixed": {"task": mask}, "output": "y"}, "fixed names task"),
        ({"fixed": {"mask": mask}, "output": "w"}, "output must be one of y, z"),
    ):
        with pytest.raises((UnreadableModel, InvalidInput), match=message):
            lc.load(model, **options)


def test_checkpoints_and_state_dicts_without_a_first_bias(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 2))
    state, file = module.state_dict(), tmp_path / "m.pt"
    torch.save(state, file)
    assert lc.load(file, "relu").sizes == (3, 5, 2)
    torch.save(
        {"epoch": 3, "model_state_dict": state, "optimizer": torch.optim.Adam(module.parameters()).state_dict()}, file
    )
    same(lc.load(file, "relu"), module, (3,))
    torch.save({"model": state, "ema": state}, file)
    with pytest.raises(UnreadableModel, match=r"several state dicts .model, ema."):
        lc.load(file, "relu")
    for sizes in ((6, 3), (6, 6), (4, 8)):  # an Embedding, and what may be one
        torch.save({"0.weight": torch.ones(sizes), "1.weight": torch.ones(2, sizes[1]), "1.bias": torch.ones(2)}, file)
        with pytest.raises(UnreadableModel, match="table of an Embedding"):
            lc.load(file, "relu")


def test_matlab_files_with_numbered_arrays(tmp_path: Path) -> None:
    file = tmp_path / "w.mat"
    arrays = {
        "W1": np.ones((3, 2)),
        "b1": np.ones((3, 1)),
        "W2": 2.0 * np.ones((1, 3)),
        "b2": 0.5,
        "activation": "tanh",
    }
    savemat(file, arrays)
    network = lc.load(file)
    assert network(np.zeros(2)) == pytest.approx(6.0 * np.tanh(1.0) + 0.5)
    savemat(file, arrays | {"V": np.ones(2)})
    with pytest.raises(UnreadableModel, match="arrays of unknown meaning: V"):
        lc.load(file)


def perceptron(kind: str, classes: int, **options: Any) -> tuple[Any, Array]:
    neural = pytest.importorskip("sklearn.neural_network")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    y = (x[:, 0] * 2).astype(int) % classes if classes else x @ np.ones(4)
    model = getattr(neural, kind)(hidden_layer_sizes=(6, 5), max_iter=8, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x, y), x


@pytest.mark.parametrize("activation", ["relu", "logistic"])
def test_perceptrons_of_scikit_learn(activation: str) -> None:
    model, x = perceptron("MLPRegressor", 0, activation=activation)
    np.testing.assert_allclose(lc.load(model)(x)[:, 0], model.predict(x), rtol=1e-9, atol=1e-9)
    model, x = perceptron("MLPClassifier", 2, activation=activation)
    np.testing.assert_allclose(lc.load(model)(x)[:, 0], model.predict_proba(x)[:, 1], rtol=1e-9, atol=1e-9)
    logit = lc.load(model, drop_softmax=True)(x)[:, 0]
    np.testing.assert_allclose(1.0 / (1.0 + np.exp(-logit)), model.predict_proba(x)[:, 1], rtol=1e-9, atol=1e-9)
    model, x = perceptron("MLPClassifier", 3, activation=activation)
    assert (lc.load(model, drop_softmax=True)(x).argmax(axis=1) == model.predict(x)).all()


def test_perceptrons_that_are_refused() -> None:
    model, _ = perceptron("MLPClassifier", 3)
    with pytest.raises(UnreadableModel, match="is a softmax; take the logits"):
        lc.load(model)
    with pytest.raises(UnreadableModel, match="not fitted"):
        lc.load(type(model)())
    with pytest.raises(UnreadableModel, match="MLPClassifier and MLPRegressor are read, got LinearRegression"):
        lc.load(pytest.importorskip("sklearn.linear_model").LinearRegression())
    model, _ = perceptron("MLPRegressor", 0)
    with pytest.raises(InvalidInput, match="not a softmax"):
        lc.load(model, drop_softmax=True)
    model.predict = lambda x: np.zeros(len(x))
    with pytest.raises(UnreadableModel, match="not faithful"):
        lc.load(model)


# models that people bring and lipcert does not read: the message names the reason and the next step


class TwoInputs(nn.Module):
    def forward(self, x: Any, z: Any) -> Any:
        return torch.cat([x, z], 1)


def recurrent(part: Any) -> Any:
    return Wrapped(lambda s, x: s.part(x)[0][:, -1], part=part)


def attention() -> Any:
    return Wrapped(lambda _, x: F.scaled_dot_product_attention(x, x, x))


def decided() -> Any:
    return Wrapped(lambda s, x: s.part(x) if x.sum() > 0 else -s.part(x), part=nn.Linear(4, 2))


def broken() -> Any:
    module = nn.Sequential(nn.Linear(4, 2))
    nn.init.constant_(module[0].weight, float("nan"))  # type: ignore[arg-type]
    return module


REFUSED: dict[str, tuple[Callable[[], Any], tuple[int, ...], str]] = {
    "lstm": (lambda: recurrent(nn.LSTM(4, 3)), (5, 4), "gates multiply signals, which is not bounded yet; load the"),
    "gru": (lambda: recurrent(nn.GRU(4, 3)), (5, 4), "gates multiply signals, which is not bounded yet; load the"),
    "attention": (attention, (5, 4), "attention multiplies signals, which is not bounded yet; load the part"),
    "glu": (lambda: nn.Sequential(nn.Linear(4, 4), nn.GLU()), (4,), "it multiplies two signals"),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8), (5, 4), "attention multiplies signals"),
    "branch": (
        decided,
        (4,),
        r"test_people\.py:\d+.*looks at values.*load the part of the module that does not decide",
    ),
    "exported": (
        lambda: torch.export.export(broken(), (torch.zeros(1, 4),)).module(),
        (4,),
        r"0\.weight: it holds 8 NaN",
    ),
    "script": (lambda: torch.jit.script(nn.Linear(4, 2)), (4,), "pass the nn.Module that it was made from"),
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


def einsums(s: Any, x: Any) -> Any:
    y = torch.einsum("bij,njk->bnik", x, s.heads).flatten(1)
    return torch.einsum("bi,oi->bo", y, s.last) + (x @ s.stacked).sum((0, 1, 2))


IDIOMS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "rnn": (lambda: recurrent(nn.RNN(4, 3, num_layers=2, bidirectional=True, batch_first=True)), (5, 4)),
    "rnn relu": (lambda: recurrent(nn.RNN(4, 3, nonlinearity="relu", bias=False)), (5, 4)),
    "rnn cell": (lambda: nn.Sequential(nn.RNNCell(4, 3), nn.Linear(3, 2)), (4,)),
    "parallel": (lambda: nn.DataParallel(nn.Sequential(nn.Linear(4, 2), nn.ReLU())), (4,)),
    "einsum": (
        lambda: Wrapped(einsums, heads=torch.randn(2, 4, 3), last=torch.randn(2, 18), stacked=torch.randn(2, 1, 4, 2)),
        (3, 4),
    ),
    "sizes and loops": (
        lambda: fn(lambda x: torch.stack([x[:, k] * (k + 1) / len(x) for k in range(x.shape[1])], 1).view(len(x), -1)),
        (3, 2),
    ),
    "masks": (
        lambda: fn(lambda x: torch.where(torch.arange(4) % 2 == 0, x, -x).masked_fill(torch.arange(4) > 2, 1.5)),
        (4,),
    ),
    "items set": (lambda: fn(_set_items), (4,)),
    "largest and its place": (lambda: fn(lambda x: x.max(1)[0] + x.view(-1, 2).max(-1).values.sum() + x.min()), (4,)),
    "pool with indices": (lambda: fn(lambda x: F.max_pool1d(x, 2, return_indices=True)[0]), (2, 4)),
    "cumulative": (lambda: fn(lambda x: torch.lerp(x, torch.relu(x), 0.25).cumsum(1).roll(1, 1).repeat(1, 2)), (4,)),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), (4,)),
    "layer made in forward": (lambda: fn(lambda x: nn.ReLU()(x)), (4,)),
}


def _set_items(x: Any) -> Any:
    y = x.clone()
    y[:, 0] = 2.0 * y[:, 1]
    y[:, 2:] += 1.0
    y[:, torch.tensor([1])] = x[:, [3]]
    return y


@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_are_read(name: str) -> None:
    torch.manual_seed(2)
    make, shape = IDIOMS[name]
    module = make().eval()
    same(lc.load(module, input_shape=shape), module, shape)


def test_saved_programs_are_read_and_run_nothing(tmp_path: Path) -> None:
    module, path = (
        dense(nn.GELU(), fn(lambda x: torch.cat([x[:, :2].relu_(), x[:, 2:] * torch.tensor([0.5, 2.0])], 1))),
        tmp_path / "m.pt2",
    )
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3),)), path)
    same(lc.load(path), module, (3,))
    members = zipfile.ZipFile(path)
    content = {name: members.read(name) for name in members.namelist()}
    graph = next(name for name in content if name.endswith("model.json"))
    config = next(name for name in content if name.endswith("weights_config.json"))

    def swapped(name: str, old: bytes, new: bytes) -> dict[str, bytes]:
        assert old in content[name]
        return {**content, name: content[name].replace(old, new)}

    for odd, reason in (
        (
            swapped(graph, b"aten.gelu.default", b"aten.from_file.default"),
            "unknown operations: torch.ops.aten.from_file",
        ),
        (swapped(graph, b"torch.ops.aten.gelu.default", b"torch.load"), "unknown operations: torch.load"),
        (swapped(graph, b'{"as_int": 3}', b'{"as_expr": {"expr_str": "print(1)"}}'), "its sizes vary"),
        (swapped(graph, b"builtins.dict", b"collections.defaultdict"), "more than tuples, lists and dictionaries"),
        (swapped(config, b'"use_pickle": false', b'"use_pickle": true'), "pickled objects"),
        ({**content, "m/data/constants/opaque_obj_0": b""}, "unknown member"),
        ({**content, graph: b"{"}, "is no exported program"),
    ):
        with zipfile.ZipFile(path, "w") as file:
            for name, data in odd.items():
                file.writestr(name, data)
        with pytest.raises(UnreadableModel, match=reason):
            lc.load(path)


def test_exported_programs_are_read() -> None:
    module = dense(nn.GELU())
    for sizes, dynamic in ((1, None), (2, ({0: torch.export.Dim("batch")},))):
        program = torch.export.export(module, (torch.zeros(sizes, 3),), dynamic_shapes=dynamic)
        same(lc.load(program), module, (3,))
        same(lc.load(program.module(), input_shape=(3,)), module, (3,))


def test_a_fixed_value_without_its_batch() -> None:
    with pytest.raises(lc.UnreadableModel, match="with a batch of one where it has one"):
        lc.load(TwoInputs().eval(), input_shape=(4,), fixed={"z": np.zeros(3)})


@pytest.mark.parametrize("question", [lc.certify, lc.reach, lc.lower_bound, lc.sensitivity])
def test_a_module_in_the_place_of_a_network(question: Any) -> None:
    with pytest.raises(lc.InvalidInput, match=r"got Linear; read it with lipcert\.load"):
        question(nn.Linear(4, 2), lc.Ball([0.0] * 4, 0.1))
    with pytest.raises(lc.InvalidInput, match=r"got Linear; read it with lipcert\.load"):
        lc.certified_radius(nn.Linear(4, 2), [0.0] * 4)  # type: ignore[arg-type]
