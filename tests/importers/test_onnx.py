"""ONNX files in: every operator against onnx's own definition of it, real models against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
import onnx_graphs
from onnx_graphs import node, single

onnx = pytest.importorskip("onnx", reason="onnx is an extra")
helper = onnx.helper
TensorProto = onnx.TensorProto


def model_of(
    nodes: Sequence[Any], shape: Sequence[Any], constants: dict[str, Any] | None = None, opset: int = 17
) -> Any:
    """A model from input ``x`` to ``y``; constants of floats are stored in single precision."""
    return onnx_graphs.model_of(nodes, single(constants or {}), shape=shape, opset=opset)


def assert_reads(model: Any, shape: Sequence[int], batched: bool = True, **options: Any) -> lc.Network:
    """The network and onnx's reference evaluator agree."""
    network = lc.load(model, **options)
    evaluator = onnx.reference.ReferenceEvaluator(model)
    rng = np.random.default_rng(1)
    for point in (2.0 * rng.standard_normal((5, *shape))).astype(np.float32):
        wanted = np.asarray(evaluator.run(None, {"x": point[None] if batched else point})[0], dtype=float).ravel()
        found = network(point.astype(float).ravel())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * (1 + np.abs(wanted).max()))
    return network


RNG = np.random.default_rng(0)


V = RNG.standard_normal(6)


IMAGE = (2, 5, 6)


KERNEL = RNG.standard_normal((4, 2, 3, 2))


ELEMENTWISE: dict[str, Any] = {
    **{key: {} for key in ("Relu", "LeakyRelu", "Selu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSigmoid")},
    **{key: {} for key in ("HardSwish", "Mish", "Gelu", "Atan", "Sin", "Abs", "Neg", "Identity", "Dropout")},
    "LeakyRelu other": {"alpha": 0.3},
    "Elu": {"alpha": 0.4},
    "Celu": {"alpha": 0.5},
    "Selu other": {"alpha": 2.0, "gamma": 1.5},
    "HardSigmoid other": {"alpha": 0.3, "beta": 0.4},
    "Gelu tanh": {"approximate": "tanh"},
}


def case(shape: tuple[int, ...], *nodes: Any, opset: int = 17, **constants: Any) -> tuple[Any, ...]:
    """Nodes on an input of a shape without the batch; a text is one node that gives ``y``."""
    made = [node(*n.split(maxsplit=1)) if isinstance(n, str) else n for n in nodes]
    return made, shape, {name: np.asarray(value) for name, value in constants.items()}, opset


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape)


POOL: dict[str, Any] = {"kernel_shape": [2, 2]}
ASYMMETRIC: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric"}
OPERATORS: dict[str, tuple[Any, ...]] = {
    **{
        name: case((6,), node(name.split()[0], "x", **given), opset=20 if name[0] in "GM" else 17)
        for name, given in ELEMENTWISE.items()
    },
    "Gemm": case((6,), "Gemm x w b", w=random(6, 3), b=V[:3]),
    "Gemm scaled": case((6,), node("Gemm", "x w b", alpha=0.5, beta=2.0, transB=1), w=random(3, 6), b=V[:3]),
    "Gemm without bias": case((6,), node("Gemm", "x w", transB=1), w=random(3, 6)),
    "Gemm left": case((6,), node("Gemm", "w x b", transA=1, transB=1), w=random(6, 3), b=np.ones((3, 1))),
    "MatMul": case((2, 6), "MatMul x w", w=random(6, 3)),
    "MatMul left": case((6, 2), "MatMul w x", w=random(3, 6)),
    "MatMul of a vector": case((2, 6), "MatMul x w", w=V),
    "MatMul, batched": case((2, 4, 6), "MatMul x w", w=random(2, 6, 3)),
    "Add": case((6,), "Add x c", c=V),
    "Add of branches": case((6,), node("Relu", "x", "r"), node("MatMul", "r w", "s"), "Add s x", w=random(6, 6)),
    "Sub from a constant": case((6,), "Sub c x", c=V),
    "Mul and Div": case((6,), node("Mul", "c x", "m"), "Div m d", c=V, d=V + 9.0),
    "Mul is SiLU": case((6,), node("Sigmoid", "x", "s"), "Mul x s"),
    "Erf is GELU": case(
        (6,),
        *(node("Div", "x root", "d"), node("Erf", "d", "e"), node("Add", "e one", "f"), node("Mul", "x f", "g")),
        "Mul g half",
        **{"root": np.sqrt(2.0), "one": 1.0, "half": 0.5},
    ),
    "Sum": case((6,), "Sum x c x", c=V),
    "Max and Min": case((6,), node("Max", "x c", "m"), "Min m d x", c=V, d=V + 1),
    "PRelu": case((2, 3), "PRelu x s", s=[[0.1], [1.5]]),
    "PRelu of one": case((2, 3), "PRelu x s", s=[0.25]),
    "Clip old": case((6,), node("Clip", "x", min=-0.5, max=1.0), opset=9),
    "Clip": case((6,), "Clip x low high", low=-0.5, high=1.0),
    "Clip below": case((6,), "Clip x low", low=0.25),
    "Clip above": case((6,), helper.make_node("Clip", ["x", "", "high"], ["y"]), high=0.25),
    "BatchNormalization": case(
        (2, 3, 3), node("BatchNormalization", "x s b m v", epsilon=1e-3), s=V[:2], b=V[2:4], m=V[4:], v=[0.3, 2.0]
    ),
    "Conv": case(IMAGE, node("Conv", "x w b", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]), w=KERNEL, b=V[:4]),
    "Conv same upper": case(IMAGE, node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2]), w=KERNEL),
    "Conv same lower": case(IMAGE, node("Conv", "x w", auto_pad="SAME_LOWER"), w=KERNEL),
    "Conv valid": case(IMAGE, node("Conv", "x w", auto_pad="VALID"), w=KERNEL),
    "Conv groups": case(IMAGE, node("Conv", "x w", group=2), w=random(4, 1, 2, 2)),
    "Conv 1d": case((2, 7), node("Conv", "x w", pads=[1, 1]), w=random(3, 2, 3)),
    "AveragePool": case(IMAGE, node("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 1], pads=[1, 1, 0, 1])),
    "AveragePool with padding": case(IMAGE, node("AveragePool", "x", **POOL, pads=[1, 1, 1, 1], count_include_pad=1)),
    "GlobalAveragePool": case(IMAGE, "GlobalAveragePool x"),
    "MaxPool": case(IMAGE, node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])),
    "MaxPool ceil": case(IMAGE, node("MaxPool", "x", **POOL, strides=[2, 2], ceil_mode=1)),
    "ReduceMean old": case(IMAGE, node("ReduceMean", "x", axes=[2, 3], keepdims=0), opset=13),
    "ReduceMean": case(IMAGE, node("ReduceMean", "x a", keepdims=1), opset=18, a=[-1]),
    "ReduceSum": case(IMAGE, node("ReduceSum", "x a", keepdims=0), opset=13, a=[1]),
    "ReduceMax": case((3, 2), node("ReduceMax", "x", axes=[1], keepdims=0), opset=13),
    "Flatten": case(IMAGE, node("Flatten", "x", "f", axis=2), "Flatten f"),
    "Reshape": case(IMAGE, "Reshape x s", s=[0, -1, 6]),
    "Transpose": case(IMAGE, node("Transpose", "x", perm=[0, 3, 1, 2])),
    "Squeeze": case((6,), node("Unsqueeze", "x a", "u"), "Squeeze u a", a=[-1]),
    "Slice old": case(IMAGE, node("Slice", "x", starts=[1, 0], ends=[9, 2], axes=[2, 1]), opset=9),
    "Slice": case(IMAGE, "Slice x s e a t", s=[-1, 0], e=[-100, 2**31], a=[3, 1], t=[-2, 1]),
    "Pad old": case(IMAGE, node("Pad", "x", pads=[0, 0, 1, 0, 0, 0, 2, 1], value=0.5), opset=9),
    "Pad reflect": case(IMAGE, node("Pad", "x p", mode="reflect"), p=[0, 0, 1, 2, 0, 0, 0, 1]),
    "Pad axes": case(
        IMAGE, helper.make_node("Pad", ["x", "p", "", "a"], ["y"], mode="edge"), opset=18, p=[1, 2, 0, 1], a=[3, 2]
    ),
    "Split": case((6,), node("Split", "x s", "a b", axis=1), node("Concat", "b a", axis=1), s=[2, 4]),
    "Expand": case((1, 3), "Expand x s", s=[1, 4, 1]),
    "Concat with a constant": case((6,), node("Concat", "x c x", axis=1), c=V[None, :2]),
    "Cast": case((6,), node("Cast", "x", "d", to=TensorProto.DOUBLE), node("Cast", "d", to=TensorProto.FLOAT)),
    "Constant, Shape": case(
        IMAGE,
        *(node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Constant", "", "rest", value_ints=[-1])),
        *(node("Concat", "n rest", "t", axis=0), "Reshape x t"),
        zero=[0],
    ),
    "DepthToSpace": case((8, 2, 3), node("DepthToSpace", "x", blocksize=2)),
    "SpaceToDepth": case((2, 4, 6), node("SpaceToDepth", "x", blocksize=2)),
    "Shrink": case((5,), node("Shrink", "x", lambd=0.5, bias=0.5)),
    "TopK": case((2,), node("TopK", "x k", "y places", axis=1, largest=0), k=[2]),
    "TopK down": case((2, 5), node("TopK", "x k", "y places", axis=1), k=[2]),
    "ConvTranspose": case(
        (2, 3, 4),
        node("ConvTranspose", "x w", strides=[2, 1], pads=[1, 0, 0, 2], output_padding=[1, 0]),
        w=random(2, 3, 3, 3),
    ),
    "Upsample": case((1, 2, 3), "Upsample x s", opset=9, s=[1.0, 1.0, 2.0, 3.0]),
    **{
        f"Resize {place} {near}": case(
            (1, 4, 3),
            helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode=place, nearest_mode=near),
            s=[1.0, 1.0, 3.0, 2.0],
        )
        for place, near in (
            *(("half_pixel", f"round_prefer_{side}") for side in ("floor", "ceil")),
            ("asymmetric", "floor"),
        )
    },
    **{
        f"{kind} {way}": case(
            (4, 3),
            node("Transpose", "x", "t", perm=[1, 0, 2]),
            node(kind, f"t w r {more}", hidden_size=2, direction=way),
            w=random(1, 2 * gates, 3),
            r=random(1, 2 * gates, 2),
            b=random(1, 4 * gates),
        )
        for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
        for way, more in (("forward", "b"), ("reverse", ""))
    },
    "Dropout with mask": case((6,), helper.make_node("Dropout", ["x"], ["y", "mask"])),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    nodes, shape, constants, opset = OPERATORS[name]
    network = assert_reads(model_of(nodes, (1, *shape), constants, opset), shape)
    assert network.inputs == int(np.prod(shape))


def test_files_and_open_batches(tmp_path: Path) -> None:
    model = model_of([node("Relu", "x")], ("N", 6))
    onnx.save(model, tmp_path / "model.onnx")
    assert lc.load(tmp_path / "model.onnx").inputs == 6
    assert lc.load(str(tmp_path / "model.onnx")).inputs == 6
    (tmp_path / "bad.onnx").write_bytes(b"not a model at all")
    with pytest.raises(lc.UnreadableModel, match=r"not a readable ONNX file|holds no graph"):
        lc.load(tmp_path / "bad.onnx")


def test_open_and_ambiguous_shapes() -> None:
    relu = [node("Relu", "x")]
    with pytest.raises(lc.InvalidInput, match="leaves sizes of its input x open; give input_shape"):
        lc.load(model_of(relu, ("N", "C", 4)))
    assert lc.load(model_of(relu, ("N", "C", 4)), input_shape=(3, 4)).inputs == 12
    with pytest.raises(lc.InvalidInput, match="does not fit"):
        lc.load(model_of(relu, ("N", "C", 4)), input_shape=(3, 5))
    with pytest.raises(lc.InvalidInput, match=r"8 at a time; give input_shape=\(4,\)"):
        lc.load(model_of(relu, (8, 4)))
    assert lc.load(model_of(relu, (8, 4)), input_shape=(4,)).inputs == 4
    assert lc.load(model_of(relu, (8, 4)), input_shape=(8, 4)).inputs == 32
    assert lc.load(model_of(relu, (7,))).inputs == 7


def test_initializers_among_the_inputs() -> None:
    """Older files list their weights as inputs too."""
    model = model_of([node("Add", "x c")], (1, 6), {"c": V}, opset=8)
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [6]))
    assert_reads(model, (6,))


def test_every_offender_is_listed() -> None:
    nodes = [
        helper.make_node("Round", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="fine"),
        helper.make_node("Mul", ["b", "x"], ["c"], name="second"),
        helper.make_node("LpNormalization", ["c"], ["d"]),
        helper.make_node("FusedThing", ["d"], ["e"], name="fourth", domain="com.example"),
        helper.make_node("Softmax", ["e"], ["y"], name="fifth"),
    ]
    model = model_of(nodes, (1, 6))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(lc.UnreadableModel) as caught:
        lc.load(model)
    text = str(caught.value)
    for line in (
        "first: Round of shape (1, 6): it jumps",
        "d: LpNormalization of shape (1, 6): it divides by a norm that may be zero",
        "fourth: FusedThing of unknown shape: operators of the domain com.example are not known",
    ):
        assert line in text
    assert "fine" not in text


def test_softmax_is_dropped_where_that_is_asked() -> None:
    nodes = [node("Gemm", "x w", "l"), helper.make_node("Softmax", ["l"], ["y"], name="probabilities")]
    weight = RNG.standard_normal((6, 3))
    model = model_of(nodes, (1, 6), {"w": weight})
    assert lc.load(model)(np.ones(6)).sum() == pytest.approx(1.0)
    network = lc.load(model, drop_softmax=True)
    np.testing.assert_allclose(network(np.ones(6)), weight.astype(np.float32).sum(axis=0), rtol=1e-6)
    with pytest.raises(lc.InvalidInput, match="not a softmax"):
        lc.load(model_of([node("Relu", "x")], (1, 6)), drop_softmax=True)


def older(axis: dict[str, int]) -> Any:
    """Before operator set 7 operands were only broadcast on demand, at the end or along an axis."""
    model = model_of(
        [node("Add", "x c", "a", broadcast=1, **axis), node("Relu", "a")], (1, 2, 2), {"c": V[:2]}, opset=6
    )
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [2]))
    model.ir_version = 3
    return model


def test_older_operator_sets_are_converted() -> None:
    found = lc.load(older({}))(np.zeros(4))
    np.testing.assert_array_equal(found, np.tile(np.maximum(V[:2].astype(np.float32), 0.0), 2))


def test_a_wrong_conversion_is_refused() -> None:
    """onnx.version_converter of 1.23 broadcasts along another axis than the one that is named."""
    with pytest.raises(lc.UnreadableModel):
        lc.load(older({"axis": 1}))


def test_models_that_are_no_networks() -> None:
    with pytest.raises(lc.InvalidInput, match="the model says which activations"):
        lc.load(model_of([node("Relu", "x")], (1, 6)), "relu")


def test_a_wrong_translation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is on: an importer that forgets the bias of Gemm does not get its network out."""
    from lipcert.importers import onnx as reader
    from lipcert.importers.onnx_ops import OPERATORS as KNOWN

    def forgetful(build: Any, left: Any, right: Any, *_: Any, **__: Any) -> Any:
        return build.matmul(left, right)

    model = model_of([node("Gemm", "x w b")], (1, 6), {"w": RNG.standard_normal((6, 3)), "b": 1e-3 * V[:3]})
    lc.load(model)
    monkeypatch.setattr(reader, "OPERATORS", {**KNOWN, "Gemm": forgetful})
    with pytest.raises(lc.UnreadableModel, match="not faithful"):
        lc.load(model)


def test_without_onnxruntime_onnx_itself_is_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    from lipcert.importers import onnx as reader

    monkeypatch.setattr(reader, "_runtime", lambda model: None)
    assert_reads(model_of([node("Conv", "x w")], (1, *IMAGE), {"w": KERNEL}), IMAGE)


def test_the_model_object_is_not_changed() -> None:
    model = model_of([node("Gemm", "x w", "l"), node("Softmax", "l")], ("N", 6), {"w": RNG.standard_normal((6, 3))})
    before = model.SerializeToString()
    lc.load(model, drop_softmax=True)
    assert model.SerializeToString() == before


REFUSED: dict[str, tuple[Any, str]] = {
    "RNN": (
        case((4, 3), node("RNN", "x w r", hidden_size=1, clip=1.0), w=random(1, 1, 3), r=random(1, 1, 1)),
        "it has clip; such layers are read with sigmoid, tanh and relu",
    ),
    "Round": (case((6,), "Round x"), "Round of shape .*: it jumps; write choices with"),
    "Sign": (case((6,), "Sign x"), "Sign of shape .*: it jumps"),
    "Cast": (case((6,), node("Cast", "x", to=TensorProto.INT64)), "rounds"),
    "Dropout": (case((6,), "Dropout x r t", r=np.float32(0.5), t=True), "random"),
    "Reshape": (case((6,), "Reshape x s", s=[5]), "cannot be evaluated"),
    "Shrink": (case((4,), node("Shrink", "x", lambd=0.5, bias=0.0)), "jumps at its limits"),
    "ThresholdedRelu": (case((4,), node("ThresholdedRelu", "x", alpha=1.0)), "it jumps"),
    "Acos": (case((4,), "Acos x"), "Acos of shape .*: unknown operator; load the part of the model behind it"),
    "TopK": (case((4,), node("TopK", "x k", "y places", axis=1), k=[2]), "only sorting all of them"),
    "powers": (case((4,), "Pow x p", p=[2.0, 3.0, 2.0, 1.0]), "of powers only 1, 2, 3, 0.5"),
    "another root": (case((4,), "Pow x p", p=0.25), "of powers only"),
    "Resize by 1.5": (
        case((4,), helper.make_node("Resize", ["x", "", "s"], ["y"]), s=[1.0, 1.5]),
        "only enlarging by whole factors",
    ),
    "Resize to the right": (
        case(
            (4,),
            helper.make_node("Resize", ["x", "", "s"], ["y"], nearest_mode="ceil", **ASYMMETRIC),
            s=[1.0, 2.0],
        ),
        "'asymmetric' and 'ceil' is not known",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_that_are_refused(name: str) -> None:
    (nodes, shape, constants, opset), reason = REFUSED[name]
    with pytest.raises(lc.UnreadableModel, match=reason):
        lc.load(model_of(nodes, (1, *shape), constants, opset))


def test_half_precision_is_read_as_the_numbers_that_are_stored() -> None:
    dtype = np.float16
    rng = np.random.default_rng(2)
    arrays = {name: rng.normal(size=size).astype(dtype) for name, size in (("W", (4, 3)), ("b", 4), ("V", (2, 4)))}
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Gemm", ["r", "V"], ["y"], transB=1),
    ]
    network = lc.load(onnx_graphs.model_of(nodes, arrays, kind=TensorProto.FLOAT16))
    np.testing.assert_array_equal(network.layers[0].weight, arrays["W"].astype(float))
    np.testing.assert_array_equal(network.layers[1].weight, arrays["V"].astype(float))
    nodes[1] = helper.make_node("Selu", ["a"], ["r"])
    assert lc.load(onnx_graphs.model_of(nodes, arrays, kind=TensorProto.FLOAT16)).depth == 2


def test_names_of_an_onnx_model_are_taken_where_they_are_asked_for() -> None:
    model = model_of([node("Gemm", "x w")], (1, 6), {"w": RNG.standard_normal((6, 1))})
    assert lc.load(model).names == ((), ())
    named = lc.load(model, inputs=True, outputs=True)
    assert named.names == (tuple(f"x[{k}]" for k in range(6)), ("y",))
    assert lc.load(model, outputs=["u [N]"]).names == ((), ("u [N]",))
    with pytest.raises(lc.InvalidInput, match="inputs must be 4 names"):
        lc.load(model_of([node("Relu", "x")], (1, 1, 2, 2)), inputs=True)


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
        ({"fixed": {"mask": mask[0]}, "output": "y"}, r"and shape \[1, 3\], got"),
        ({"fixed": {"mask": mask + 0.1j}, "output": "y"}, "must be numbers of type"),
        ({"fixed": {"mask": mask.astype(float) + 1e-12}, "output": "y"}, "got others"),
        ({"fixed": {"task": mask}, "output": "y"}, "fixed names task"),
        ({"fixed": {"mask": mask}, "output": "w"}, "output must be one of y, z"),
    ):
        with pytest.raises((lc.UnreadableModel, lc.InvalidInput), match=message):
            lc.load(model, **options)
