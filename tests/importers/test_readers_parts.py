"""The readers' parts, one by one: registry, calls, checks, constants, what is given, guards, arrangements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import lipcert as lc
from lipcert.importers import (
    onnx_arrange,
    onnx_checks,
    onnx_given,
    registry,
    torch_arrange,
    torch_given,
    torch_guard,
    torch_layers,
    torch_watch,
)
from lipcert.importers.builder import Builder, Unsupported
from lipcert.importers.lowering import lower
from lipcert.importers.onnx_call import Call, Room, axis_of
from lipcert.importers.onnx_constants import Constants
from onnx_graphs import model_of, node


class Mine(nn.Module):
    """A module of somebody's own."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        return {"logits": scale * x * mask, "x": x}


def test_the_registry_knows_a_class_and_not_its_subclasses() -> None:
    row = lc.activation("tanh")
    registry.register(row, torch=Mine, onnx="my.domain:Tanh")
    assert registry.of_module(Mine()) is row
    assert registry.of_module(type("Heir", (Mine,), {})()) is None
    assert registry.of_function("my.domain", "Tanh") is row
    assert registry.of_function("other", "Tanh") is None
    registry.register(row, onnx="Anywhere")
    assert registry.of_function("other", "Anywhere") is row
    for wrong in ({"torch": nn.ReLU}, {"torch": Mine()}, {"onnx": "domain:"}, {"onnx": 3}):
        with pytest.raises(lc.InvalidInput):
            registry.register(row, **wrong)


def test_a_call_gives_its_operands_and_keeps_to_its_room() -> None:
    b = Builder((1, 3))
    call = Call([b.input, np.array([1, 0])], {"axis": b"text", "shape": [2]}, 17)
    assert call.x is b.input
    assert call.attribute("axis") == "text"
    assert call.whole(1, "shape") == [1, 0]
    assert call.whole(2, "shape") == [2]  # an operand that is left out is an attribute of older operator sets
    with pytest.raises(Unsupported, match="depends on the input"):
        call.constant(0, "shape")
    with pytest.raises(Unsupported, match="whole numbers"):
        Call([b.input, np.array([0.5])], {}, 17).whole(1, "shape")
    with pytest.raises(Unsupported, match="first operand"):
        _ = Call([np.ones(3)], {}, 17).x
    assert [axis_of(a, 3) for a in (-1, 0, 2)] == [2, 0, 2]
    with pytest.raises(Unsupported, match="axis 3 of 3"):
        axis_of(3, 3)
    room = Room()
    room.take(room.left)
    with pytest.raises(Unsupported, match="numbers"):
        room.take(1)


def test_operator_sets_and_names_are_checked() -> None:
    model = model_of([node("Relu", "x")])
    assert onnx_checks.opset_of(model) == 17
    onnx_checks.check_names(model.graph)
    for wrong, reason in (
        (model_of([node("Relu", "x")], opset=6), "oldest"),
        (model_of([node("Relu", "x")], opset=999), "newer"),
    ):
        with pytest.raises(lc.UnreadableModel, match=reason):
            onnx_checks.opset_of(wrong)
    for nodes, reason in (
        ([node("Relu", "h"), node("Relu", "x", "h")], "a later operator gives it"),
        ([node("Relu", "nowhere")], "nothing in the model gives it"),
        ([node("Relu", "x"), node("Tanh", "x")], "several values the name y"),
    ):
        with pytest.raises(lc.UnreadableModel, match=reason):
            onnx_checks.check_names(model_of(nodes).graph)
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "W")
    assert onnx_checks.tensor_array(tensor).tolist() == [1.0, 1.0]
    tensor.data_location = TensorProto.EXTERNAL
    with pytest.raises(lc.UnreadableModel):
        onnx_checks.tensor_array(tensor)


def test_operators_on_constants_are_evaluated_within_limits() -> None:
    constants = Constants([helper.make_opsetid("", 17)], 0)
    (found,) = constants.evaluate(node("Add", "a b", "c"), [np.array([1.0, 2.0]), np.array([3.0])])
    assert found is not None
    assert found.tolist() == [4.0, 5.0]
    with pytest.raises(Unsupported, match="random, slow or unknown"):
        constants.evaluate(node("RandomNormalLike", "a", "c"), [np.ones(2)])
    with pytest.raises(Unsupported, match="far more numbers"):
        constants.evaluate(node("Expand", "a s", "c"), [np.ones(1), np.array([2**40])])


def _given(**values: Any) -> Any:
    entries = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("x", "mask")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "7")]
    graph = helper.make_graph([node("Mul", "x mask", "y"), node("Relu", "y", "7")], "g", entries, ends)
    onnx_given.fix_inputs(graph, values)
    return graph


def test_fixed_inputs_are_stored_in_the_model() -> None:
    graph = _given(mask=[0.1, 2, 3])
    assert [entry.name for entry in graph.input] == ["x"]
    stored = numpy_helper.to_array(graph.initializer[0])
    assert stored.tolist() == np.array([[0.1, 2, 3]], np.float32).tolist()
    with pytest.raises(lc.InvalidInput, match="got others"):  # an array has a type of its own
        _given(mask=np.array([[0.1, 2, 3]]))
    with pytest.raises(lc.InvalidInput, match="of shape"):
        _given(mask=[[1.0], [2.0], [3.0]])


@pytest.mark.parametrize(("chosen", "name"), [("y", "y"), (1, "7"), ("7", "7"), ("0", "y"), (-1, "7")])
def test_an_output_is_chosen_by_name_before_number(chosen: str | int, name: str) -> None:
    graph = _given()
    onnx_given.choose_output(graph, chosen)
    assert [entry.name for entry in graph.output] == [name]


def test_bfloat16_is_widened_without_a_change() -> None:
    values = np.array([1.0, 0.5, -3.0], dtype=np.float32)
    graph = onnx.GraphProto()
    graph.initializer.append(helper.make_tensor("W", TensorProto.BFLOAT16, [3], values))
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [1, 3]))
    onnx_given.widen_bfloat16(graph)
    assert numpy_helper.to_array(graph.initializer[0]).tolist() == values.tolist()
    assert graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    graph.node.append(node("Cast", "x", to=TensorProto.BFLOAT16))
    with pytest.raises(lc.UnreadableModel, match="rounds to bfloat16"):
        onnx_given.widen_bfloat16(graph)


def test_a_module_of_several_arguments_becomes_one_of_one() -> None:
    wrapped = torch_given.given(Mine(), {"mask": np.array([1.0, 0.0])}, "logits")
    assert wrapped(torch.tensor([[2.0, 3.0]])).tolist() == [[2.0, 0.0]]
    plain = nn.Linear(2, 1)
    assert torch_given.given(plain, None, None) is plain
    with pytest.raises(lc.UnreadableModel, match="takes 2 inputs"):
        torch_given.given(Mine(), None, None)


def test_hooks_and_strange_numbers_are_refused() -> None:
    module = nn.Linear(2, 1).eval()
    torch_guard.inspect(module)
    assert torch_guard.precisions(module) == (torch.float32,)
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(lc.UnreadableModel, match="forward hook"):
        torch_guard.inspect(module)
    with pytest.raises(lc.UnreadableModel, match="weight"):
        torch_guard.inspect(nn.Linear(2, 1, dtype=torch.complex64).eval())


def test_a_record_tells_two_functions_apart() -> None:
    x = torch.tensor([[1.0, -2.0]])
    calls: list[Callable[[Any], Any]] = [lambda v: v.relu() + 1, lambda v: v.relu() + 2]
    one, again, other = (torch_watch.record(call, x) for call in (calls[0], calls[0], calls[1]))
    assert one.steps == again.steps != other.steps
    assert one.bits == 24
    assert torch_watch.record(lambda v: v if v.sum().item() > 0 else -v, x).offences


def _value(build: Callable[[Builder, Any], Any], x: np.ndarray) -> np.ndarray:
    b = Builder(x.shape)
    return lower(b.finish(build(b, b.input))).network(x.ravel())


def test_arrangements_move_what_numpy_moves() -> None:
    x = np.arange(6.0).reshape(1, 2, 3)
    turned = _value(lambda b, v: onnx_arrange.transpose(b, Call([v], {"perm": [0, 2, 1]}, 17)), x)
    assert turned.tolist() == x.transpose(0, 2, 1).ravel().tolist()
    picked = _value(lambda b, v: onnx_arrange.gather(b, Call([v, np.array([2, 0])], {"axis": 2}, 17)), x)
    assert picked.tolist() == x[..., [2, 0]].ravel().tolist()
    swapped = _value(lambda b, v: torch_arrange.ARRANGE["transpose"](b, v, 1, 2), x)
    assert swapped.tolist() == turned.tolist()
    with pytest.raises(Unsupported):
        onnx_arrange.gather(Builder((3,)), Call([Builder((3,)).input, np.array([0.5])], {}, 17))


def test_layers_are_those_of_pytorch() -> None:
    x = np.array([[1.0, -2.0]])
    weight, bias = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]), np.array([0.5, 0.0, -1.0])
    expected = nn.functional.linear(*(torch.tensor(v) for v in (x, weight, bias))).numpy().ravel()
    assert _value(lambda b, v: torch_layers.linear(b, v, weight, bias), x).tolist() == expected.tolist()
    leaky = _value(lambda b, v: torch_layers.prelu(b, v, np.array([0.25])), x)
    assert leaky.tolist() == [1.0, -0.5]
    with pytest.raises(Unsupported, match="random"):
        torch_layers.dropout(Builder((1, 2)), Builder((1, 2)).input)
