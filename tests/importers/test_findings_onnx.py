"""What attacks found in the reader of ONNX files: each hole once, refused with its reason or read right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from onnx_graphs import DOUBLE, FLOAT, model_of, node

onnx = pytest.importorskip("onnx", reason="onnx is an extra")
helper = onnx.helper
INT64 = onnx.TensorProto.INT64
ONES, HALVES = np.ones(3, np.float32), np.full((1, 3), 0.5, np.float32)


def refused(model: Any, reason: str, **options: Any) -> None:
    with pytest.raises(lc.UnreadableModel, match=reason):
        lc.load(model, **options)


def changed(change: Callable[[Any], Any], *nodes: Any, **options: Any) -> Any:
    """A model that is changed after it was made."""
    model = model_of(list(nodes) or [node("Relu", "x")], **options)
    change(model)
    return model


def _retyped(kind: int, model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = kind


def _dated(version: int, model: Any) -> None:
    model.ir_version = version


def left_out(kind: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> Any:
    """An operator, some of whose operands or results are the empty name."""
    return helper.make_node(kind, inputs, outputs or ["y"], **attributes)


LATE = helper.make_node("Constant", [], ["c"], value_float=1e6), left_out("Clip", ["x", "", "c"], name="clip")
SCALE = dict.fromkeys("sbmv", ONES)
NORM = [node("BatchNormalization", "x s b m v")]
TYPES = onnx.TensorProto
ODD: dict[str, tuple[Any, str]] = {
    # the limit of the Clip is given after it; an old reader took it for left out, and dropped the Clip
    "out of order": (model_of(LATE[::-1]), "not proper ONNX: .*topologically sorted.* 'c' of node: name: clip"),
    "undefined": (model_of([node("Clip", "x nowhere also")]), "'nowhere' of node: .* Clip is not output of any"),
    "no output": (model_of([node("Relu", "x", "z")]), "output 'y' is not an output of any node"),
    "circle": (model_of([node("Relu", "x", "z"), node("Relu", "z y")]), "'y' of node: .* is not output of any"),
    "a name twice": (
        model_of([node("Relu", "x", "z"), node("Neg", "x", "z"), node("Relu", "z")]),
        "'z' has been used as output names multiple times",
    ),
    "the name of a constant": (
        model_of([node("Relu", "x", "c"), node("Relu", "c")], {"c": np.float32(1)}),
        "'c' has been used as output names multiple times",
    ),
    "the name of the input": (
        model_of([node("Relu", "x", "x"), node("Relu", "x")]),
        "'x' has been used as output names multiple times",
    ),
    # an old reader gave the second name the first part; onnxruntime crashes
    "a result left out": (
        model_of([left_out("Split", ["x", "s"], ["", "y"], axis=1)], {"s": np.array([1, 2])}),
        "leaves out an operand or a result that it must have",
    ),
    "an operand left out": (model_of([left_out("Concat", ["x", ""], axis=1)]), "leaves out an operand"),
    "dropout of constants": (
        model_of(
            [helper.make_node("Dropout", ["c", "p", "t"], ["r"], seed=3), node("Add", "x r")],
            {"c": HALVES, "p": np.float32(0.5), "t": np.array(True)},
        ),
        "Dropout .*it may be random",
    ),
    **{
        f"clip {low} {high}": (
            model_of([node("Clip", "x low high")], {"low": np.float32(low), "high": np.float32(high)}),
            "its limits are|needs min_val < max_val|low holds 1 NaN",
        )
        for low, high in ((np.nan, 1.0), (np.inf, np.inf), (-np.inf, -np.inf), (2.0, 1.0))
    },
    "negative variance": (model_of(NORM, SCALE | {"v": -ONES}), "variance . epsilon must be positive"),
    "NaN in a variance": (model_of(NORM, SCALE | {"v": ONES * np.nan}), "v holds 3 NaN"),
    "one gain for three": (model_of(NORM, SCALE | {"s": ONES[:1]}), "operands do not fit .*between 1 and 3"),
    "infinite gain": (model_of(NORM, SCALE | {"s": ONES * np.inf}), "must be finite|not finite"),
    "cast down": (
        model_of([node("Cast", "x", "f", to=FLOAT), node("Cast", "f", to=DOUBLE)], kind=DOUBLE),
        "rounds from double to single precision",
    ),
    "cast down after work": (
        model_of(
            [node("Cast", "x", "d", to=DOUBLE), node("Mul", "d c", "e"), node("Cast", "e", to=FLOAT)],
            {"c": np.float64(0.1)},
        ),
        "rounds from double to single precision",
    ),
    **{
        f"cast to {to}": (model_of([node("Cast", "x", "h", to=to), node("Cast", "h", to=FLOAT)]), "rounds to")
        for to in (TYPES.FLOAT16, TYPES.BFLOAT16, INT64)
    },
    "two types": (model_of([node("Add", "x c")], {"c": np.ones(3)}), "inconsistent type tensor"),
    "two types of signals": (
        model_of([node("Cast", "x", "d", to=DOUBLE), node("Add", "d x")]),
        "inconsistent type tensor",
    ),
    **{
        f"an input of type {kind}": (changed(partial(_retyped, kind)), f"of type {came}")
        for kind, came in ((0, "no tensor"), (99, "unknown"), (INT64, "int64"), (TYPES.STRING, "string"))
    },
    "no axes": (model_of([node("Relu", "x")], shape=()), "a single number without axes"),
    "an unknown attribute": (model_of([node("Relu", "x", alpha=3.0)]), "not proper ONNX"),
    "an operand too many": (model_of([node("Relu", "x x")]), "not proper ONNX"),
    "set 999": (model_of([node("Relu", "x")], opset=999), "operator set 999; this onnx knows one at a time"),
    **{f"ir {version}": (changed(partial(_dated, version)), "not proper ONNX") for version in (0, -1, 99, 2**40)},
    "two sets": (
        changed(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 9))),
        "set 9, 17; this onnx",
    ),
    "infinity": (model_of([node("Mul", "x c")], {"c": np.float32(np.inf)}), "must be finite|not finite"),
    "NaN": (model_of([node("Mul", "x c")], {"c": np.float32(np.nan)}), "c holds 1 NaN"),
    "NaN in a weight": (
        model_of([node("MatMul", "x fc.weight")], {"fc.weight": np.array([[1.0], [np.nan], [2.0]], np.float32)}),
        r"fc\.weight holds 1 NaN",
    ),
    **{
        f"{random.op_type}": (
            model_of([random, node("Cast", "r", "s", to=FLOAT), node("Add", "x s")], {"c": HALVES}),
            f"{random.op_type} .*: it is not evaluated on constants, because it may be random",
        )
        for random in (
            node("RandomNormal", "", "r", shape=[1, 3], seed=1.0),
            node("RandomUniform", "", "r", shape=[1, 3], low=1.0, high=1.0 + 1e-6),
            *(node(kind, "c", "r") for kind in ("RandomNormalLike", "RandomUniformLike", "Bernoulli")),
            node("Multinomial", "c", "r", dtype=6),
        )
    },
}
"""Models, and why they are refused."""


@pytest.mark.parametrize("name", ODD)
def test_odd_models_are_refused(name: str) -> None:
    refused(*ODD[name])


def test_what_is_like_it_but_right_is_read() -> None:
    assert lc.load(model_of(LATE))([1e7, 0.0, 0.0])[0] == 1e6
    # the mask of a dropout keeps everything, whatever the input; an old reader took the input for it
    drop = helper.make_node("Dropout", ["x"], ["d", "mask"])
    net = lc.load(model_of([drop, node("Cast", "mask", "m", to=FLOAT), node("Add", "d m")]))
    assert net([1.0, 2.0, 3.0]).tolist() == [2.0, 3.0, 4.0]
    there = [node("Relu", "x", "r"), node("Cast", "r", "d", to=DOUBLE), node("Cast", "d", to=FLOAT)]
    assert lc.load(model_of(there))([-1.0, 2.0, 3.0]).tolist() == [0.0, 2.0, 3.0]
    assert lc.load(model_of([node("Cast", "x", "d", to=DOUBLE), node("Relu", "d")])).sizes == (3, 3, 3)


@pytest.mark.parametrize("opset", [10, 17])
@pytest.mark.parametrize(("low", "high"), [(None, 2e38), (-2e38, None), (-2e38, 2e38), (None, 1e30), (0.0, 3e38)])
def test_finding_4_a_clip_limit_above_1e38_is_kept(opset: int, low: float | None, high: float | None) -> None:
    large = np.float32(3.3e38)
    if opset < 11:
        limits = {key: value for key, value in (("min", low), ("max", high)) if value is not None}
        model = model_of([helper.make_node("Clip", ["x"], ["y"], **limits)], opset=opset)
    else:
        given = {key: np.float32(value) for key, value in (("low", low), ("high", high)) if value is not None}
        names = ["x", *(name if name in given else "" for name in ("low", "high"))]
        model = model_of([helper.make_node("Clip", names, ["y"])], given)
    net = lc.load(model)
    wanted = np.clip([large, -large, 1.0], low and np.float32(low), high and np.float32(high))
    found = net(np.array([large, -large, 1.0], dtype=float))
    np.testing.assert_array_equal(found, np.asarray(wanted, dtype=float))


def test_a_limit_that_no_number_exceeds_is_none() -> None:
    """Exporters write a ReLU as a Clip up to the largest number."""
    most = np.finfo(np.float32).max
    net = lc.load(model_of([node("Clip", "x low high")], {"low": np.float32(0), "high": most}))
    assert net.layers[0].neurons is not None
    assert net.layers[0].neurons.describe() == "relu"
    old = lc.load(model_of([node("Clip", "x")], opset=10))
    assert old.depth == 1


def test_in_double_precision_the_largest_single_number_is_a_limit() -> None:
    most = float(np.finfo(np.float32).max)
    net = lc.load(model_of([node("Clip", "x")], opset=10, kind=DOUBLE))
    assert net([1e39, -1e39, 1.0]).tolist() == [most, -most, 1.0]


@pytest.mark.parametrize("name", ["Selu", "HardSigmoid", "LeakyRelu", "Elu", "Celu"])
def test_finding_4_onnx_defaults_are_single_precision(name: str) -> None:
    """At a precision that tells 0.2 from the nearest number of single precision."""
    single = {
        "Selu": lambda x: _f(1.05070102214813232421875) * (_f(1.67326319217681884765625) * np.expm1(x) if x < 0 else x),
        "HardSigmoid": lambda x: min(max(_f(0.2) * x + 0.5, 0.0), 1.0),
        "LeakyRelu": lambda x: _f(0.01) * x if x < 0 else x,
        "Elu": lambda x: np.expm1(x) if x < 0 else x,
        "Celu": lambda x: np.expm1(x) if x < 0 else x,
    }
    kind = FLOAT if name == "Celu" else DOUBLE  # Celu is defined for single precision only
    net = lc.load(model_of([node(name, "x")], kind=kind))
    for x in (-1.25, -0.375, 0.75, 2.0):
        assert float(net(np.full(3, x))[0]) == pytest.approx(float(single[name](x)), rel=1e-14)


def _f(value: float) -> float:
    return float(np.float32(value))


def test_finding_4_epsilon_of_batch_normalization_is_single_precision() -> None:
    one, zero = np.ones(3), np.zeros(3)
    constants = {"s": one, "b": zero, "m": zero, "v": zero}
    net = lc.load(model_of([node("BatchNormalization", "x s b m v")], constants, kind=DOUBLE))
    assert float(net(one)[0]) == pytest.approx(1.0 / np.sqrt(_f(1e-5)), rel=1e-15)


def test_finding_11_selu_does_not_snap_to_its_usual_constants() -> None:
    net = lc.load(model_of([node("Selu", "x", alpha=1.6732638, gamma=1.0507012)], kind=DOUBLE))
    assert float(net(np.full(3, 2.0))[0]) == pytest.approx(2.0 * _f(1.0507012), rel=1e-15)


def bomb(depth: int, width: int = 2) -> Any:
    """Functions that call the one before several times."""
    model = model_of([helper.make_node(f"F{depth}", ["x"], ["y"], domain="local")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for level in range(depth + 1):
        kind, domain = (f"F{level - 1}", "local") if level else ("Relu", "")
        names = ["a", *(f"t{k}" for k in range(width - 1)), "b"]
        body = [helper.make_node(kind, [one], [two], domain=domain) for one, two in itertools.pairwise(names)]
        model.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], body, opsets))
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


@pytest.mark.parametrize("depth", [1, 17, 150])
def test_finding_9_functions_are_written_out_unless_they_are_too_many(depth: int) -> None:
    if depth == 1:
        assert lc.load(bomb(depth)).sizes == (3, 3, 3, 3, 3, 3)
    else:
        refused(bomb(depth), "written out, are 10000 operators or more|depth exceeds limit")


def huge(*nodes: Any, constants: dict[str, Any] | None = None, shape: tuple[Any, ...] = (1, 3)) -> Any:
    return model_of(list(nodes), constants, shape=shape)


LOTS = np.array([2**20, 2**20])


BOMBS = {
    "an input": huge(node("Relu", "x"), shape=(1, 2**20, 2**20)),
    "a constant": huge(node("ConstantOfShape", "s", "c"), node("Add", "x c"), constants={"s": LOTS}),
    "a constant expanded": huge(
        node("Expand", "c s", "d"), node("Add", "x d"), constants={"c": np.float32(1), "s": LOTS}
    ),
    "a range": huge(
        node("Range", "a b c", "r"),
        node("Add", "x r"),
        constants={"a": np.float32(0), "b": np.float32(1e12), "c": np.float32(1)},
    ),
    "the input expanded": huge(node("Expand", "x s"), constants={"s": np.array([2**20, 2**20, 1])}),
    "the input padded": huge(node("Pad", "x p"), constants={"p": np.array([0, 0, 2**40, 2**40])}),
    "the input gathered": huge(
        *(node("Gather", f"{a} i", b, axis=1) for a, b in itertools.pairwise(["x", "a", "b", "c", "d", "y"])),
        constants={"i": np.zeros((300, 300), dtype=np.int64)},
    ),
    "the input concatenated": huge(
        *(helper.make_node("Concat", [f"v{k}"] * 10 if k else ["x"] * 10, [f"v{k + 1}"], axis=1) for k in range(12)),
        node("Relu", "v12"),
    ),
    "a sum": huge(
        node("Reshape", "x s", "r"), node("Add", "r x", "t"), constants={"s": np.array([-1, 1])}, shape=(1, 2**20)
    ),
    "a kernel far apart": huge(
        node("Conv", "x w", dilations=[2**40]), constants={"w": np.ones((1, 1, 2), np.float32)}, shape=(1, 1, 3)
    ),
    "a pool with much padding": huge(node("MaxPool", "x", kernel_shape=[2**40], pads=[2**39, 2**39]), shape=(1, 1, 3)),
    "a large kernel": huge(
        node("ConstantOfShape", "s", "w"),
        node("Conv", "x w"),
        constants={"s": np.array([1, 1, 1500, 1500])},
        shape=(1, 1, 4000, 4000),
    ),
    "a matrix for each row": huge(
        node("MatMul", "x w"), constants={"w": np.ones((2, 1000), np.float32)}, shape=(1, 2**22, 2)
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_does_not_ask_for_all_memory(name: str) -> None:
    with pytest.raises(lc.LipcertError):
        lc.load(BOMBS[name])


def test_tensors_whose_numbers_cannot_be_read() -> None:
    def damaged(change: Any) -> Any:
        model = model_of([node("Add", "x c")], {"c": np.ones(3, np.float32)})
        change(model.graph.initializer[0])
        return model

    for change in (
        lambda t: setattr(t, "raw_data", t.raw_data[:-1]),
        lambda t: setattr(t, "data_type", 99),
        lambda t: t.dims.append(2**40),
        lambda t: t.dims.append(-2),
        lambda t: setattr(t, "data_location", 1),
    ):
        refused(damaged(change), "the numbers of c cannot be read")
        constant = helper.make_node("Constant", [], ["c"], value=damaged(change).graph.initializer[0])
        refused(model_of([constant, node("Add", "x c")]), "the numbers of c cannot be read")


def test_a_tensor_that_lies_about_its_size_is_not_counted_through() -> None:
    """Onnx's inference of shapes would count to the size that it names, 2³¹, or as far as memory goes."""
    constants = {"i": np.array([0]), "s": np.array([-1])}
    nodes = [node("Shape", "x", "a"), node("Gather", "a i", "n"), node("Concat", "n s", "t", axis=0)]
    model = model_of([*nodes, node("Reshape", "x t")], constants)
    for size in (2**31 - 1, 2**62):
        model.graph.initializer[0].dims[0] = size
        refused(model, "the numbers of i cannot be read")


def test_sparse_values_are_refused() -> None:
    values = helper.make_tensor("v", FLOAT, [1], [1.0])
    for place in (1, -5, 2**40):
        sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", INT64, [1], [place]), [3])
        constant = helper.make_node("Constant", [], ["c"], sparse_value=sparse)
        refused(model_of([constant, node("Add", "x c")]), "sparse value; store it dense|not proper ONNX: Sparse tensor")
        model = model_of([node("Add", "x v")])
        model.graph.sparse_initializer.append(sparse)
        refused(model, "sparse initializers")


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Split", "x s", "y z", axis=1)], {"s": np.array([1, 1])}),
        ([node("Split", "x s", "y z", axis=1)], {"s": np.array([4, -1])}),
        ([node("Transpose", "x", perm=[0, 0])], {}),
        ([node("Gather", "x i", axis=9)], {"i": np.array([0])}),
        ([node("Gather", "x i", axis=1)], {"i": np.array([2**40])}),
        ([node("Slice", "x a b c")], {"a": np.array([0, 0]), "b": np.array([1, 2]), "c": np.array([1, 1])}),
        ([node("ReduceSum", "x a")], {"a": np.array([7])}),
        ([node("Flatten", "x", axis=5)], {}),
        ([node("Unsqueeze", "x a")], {"a": np.array([70])}),
        ([node("Reshape", "x s")], {"s": np.array([-1, -1])}),
        ([node("Reshape", "x s")], {"s": np.array([2**62, 2**62])}),
        ([node("Concat", "x x", axis=4)], {}),
        ([node("Pad", "x p")], {"p": np.array([-9, -9, -9, -9])}),
    ],
)
def test_arguments_outside_of_what_there_is(nodes: list[Any], constants: dict[str, Any]) -> None:
    with pytest.raises(lc.UnreadableModel):
        lc.load(model_of(nodes, constants))


def test_the_comparison_is_with_the_untouched_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The softmax is still there, and shapes are those of the file."""
    from lipcert.importers import onnx as reader

    seen: list[Any] = []
    runtime = reader._runtime
    monkeypatch.setattr(reader, "_runtime", lambda model: seen.append(model) or runtime(model))  # type: ignore[func-returns-value]
    model = model_of([node("Relu", "x", "z"), node("Softmax", "z")], shape=("N", 3))
    lc.load(model, drop_softmax=True)
    assert seen[-1].graph.input == model.graph.input
    assert [n.op_type for n in seen[-1].graph.node] == ["Relu", "Softmax"]
    assert seen[-1].graph.output[0].name == "z"


def test_a_model_that_mixes_its_batch_is_not_read_one_at_a_time() -> None:
    mixing = model_of([node("ReduceMean", "x", "m", axes=[0]), node("Add", "x m")], shape=(4, 3))
    refused(mixing, "not faithful", input_shape=(3,))
    alone = model_of([node("Relu", "x")], shape=(4, 3))
    assert lc.load(alone, input_shape=(3,)).inputs == 3


def test_external_numbers_that_are_missing(tmp_path: Path) -> None:
    model = model_of([node("Add", "x c")], {"c": np.ones(3, np.float32)})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    assert lc.load(tmp_path / "m.onnx").inputs == 3
    (tmp_path / "data").unlink()
    with pytest.raises(lc.UnreadableModel):
        lc.load(tmp_path / "m.onnx")
