"""The walk over an ONNX model's operators that writes our graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from lipcert.errors import LipcertError, UnreadableModel
from lipcert.importers.builder import SOFTMAX, Builder, Opaque, Positions, Tensor, Unsupported
from lipcert.importers.graph import Graph
from lipcert.importers.onnx_ops import ARRANGING, OPERATORS, Call, Operator, Room, softmax
from lipcert.importers.registry import of_function
from lipcert.importers.untrusted import line, shown
from lipcert.importers.windows import positions
from lipcert.model.arrays import Array

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
REAL: Final[dict[int, Any]] = {onnx.TensorProto.FLOAT16: np.float16, FLOAT: np.float32, DOUBLE: np.float64}
"""The types of numbers that depend on the input."""

_MIXED: Final = ("BatchNormalization", "Dropout")
"""Operators that take constants of another type of number."""


@dataclass(frozen=True)
class Source:
    """The model's input: its shape, batch of one included if it has a batch, and its type of numbers.

    ``batch`` is how many inputs the file insists on at a time.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    batched: bool
    batch: int = 1

    def feed(self, x: Array) -> dict[str, Array]:
        """The operand for one flat input; where the file wants several, the others are different ones."""
        rows = [x * (1.0 - 0.25 * k) + 0.5 * k for k in range(self.batch)]
        return {self.name: np.reshape(rows, (self.batch * self.shape[0], *self.shape[1:])).astype(REAL[self.kind])}


class Reader:
    """Walks the operators and writes the graph."""

    def __init__(self, model: onnx.ModelProto, source: Source, opset: int) -> None:
        self.model, self.source, self.opset = model, source, opset
        self.functions = {(f.domain, f.name) for f in model.functions}  # those that are registered: others are gone
        self.build = Builder(source.shape)
        self.values: dict[str, Any] = dict(_stored_arrays(model.graph))
        self.shapes = _inferred(model)
        stored = sum(value.size for value in self.values.values())
        self.constants, self.room = Constants(model.opset_import, stored), Room(stored)
        self.positions = Constants(model.opset_import, 64 * stored)
        self.values[source.name] = self.build.input
        self.kinds = {source.name: source.kind}
        self.single = {self.build.input.node} if source.kind != DOUBLE else set()
        self.context = onnx.checker.DEFAULT_CONTEXT.__class__()
        self.context.ir_version = model.ir_version
        self.context.opset_imports = {"": opset, "ai.onnx": opset}

    def read(self) -> Graph:
        """The finished graph, or an error with every offender."""
        for node in self.model.graph.node:
            self._node(node)
        return self.build.finish(self.values[self.model.graph.output[0].name])

    def _node(self, node: onnx.NodeProto) -> None:
        operands = [self.values[name] if name else None for name in node.input]
        tensors = [operand for operand in operands if isinstance(operand, Tensor)]
        names = [name for name in node.output if name]
        results: Sequence[Any] | None = None
        shape = self.shapes.get(names[0]) if names else None
        with self.build.reading(node.name or (names[0] if names else node.op_type), node.op_type, shape):
            if any(isinstance(operand, Positions) for operand in operands):
                raise Unsupported(Positions.reason)
            operator = self._operator(node, bool(tensors))
            if not any(isinstance(operand, Opaque) for operand in operands):
                results = self._results(operator, node, operands, bool(tensors))
        if results is None:
            results = [self._unknown(name, tensors) for name in node.output]
        self.values.update((name, result) for name, result in zip(node.output, results, strict=True) if name)

    def _operator(self, node: onnx.NodeProto, depends: bool) -> Operator | None:
        """What to do for an operator; None where it is known on constants only."""
        mine = of_function(node.domain, node.op_type) if (node.domain, node.op_type) in self.functions else None
        if mine is not None:
            if len(node.input) != 1 or len(node.output) != 1 or node.attribute or not depends:
                raise Unsupported("it is registered as an activation, and must take one operand that is no constant")
            return lambda b, call: b.apply(call.x, mine)
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"operators of the domain {node.domain} are not known")
        if any(a.g.node or a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            raise Unsupported("control flow has no translation")
        operator = OPERATORS.get(node.op_type)
        pads = node.op_type == "Pad" and any(a.name == "mode" and a.s != b"constant" for a in node.attribute)
        if node.op_type in ARRANGING or pads:
            operator = partial(self._arranged, node)
        if (depends or any(isinstance(self.values[name], Opaque) for name in node.input if name)) and (
            operator is None or operator is softmax
        ):
            raise Unsupported(SOFTMAX if operator is softmax else "unknown operator")
        try:
            onnx.checker.check_node(node, self.context)
        except Exception as error:  # its own class, or an error of its C++ part
            raise Unsupported(f"it is not a proper operator: {line(error)}") from None
        self._complete(node)
        return operator

    def _complete(self, node: onnx.NodeProto) -> None:
        """Refuse a node that leaves out what is not optional; onnxruntime would crash on some."""
        schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        for names, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
            for place, name in enumerate(names):
                if not name and formal[min(place, len(formal) - 1)].option != optional:
                    raise Unsupported("it leaves out an operand or a result that it must have")

    def _results(
        self, operator: Operator | None, node: onnx.NodeProto, operands: Sequence[Any], depends: bool
    ) -> Sequence[Any]:
        if not depends:
            return self.constants.evaluate(node, operands)
        assert operator is not None
        kind, single = self._kind(node, operands)
        attributes = {} if (node.domain, node.op_type) in self.functions else self._attributes(node)
        call = Call(operands, attributes, self.opset, len(node.output), REAL[kind], single, self.room)
        try:
            with np.errstate(all="ignore"):  # numbers that are not finite are refused at the end
                result = operator(self.build, call)
        except LipcertError:  # says itself what is wrong
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError) as error:
            raise Unsupported(f"it is used in an unknown way: {error}") from None
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(node.output):
            raise Unsupported(f"it gives {len(results)} results and the model expects {len(node.output)}")
        self.room.tensor(sum(value.size for value in results if isinstance(value, Tensor)))
        self._remember(node, results, kind)
        return results

    def _arranged(self, node: onnx.NodeProto, b: Builder, call: Call) -> Any:
        """What an operator that only moves elements makes of x: it is evaluated on the elements' positions."""
        if any(isinstance(operand, Tensor) for operand in call.operands[1:]):
            raise Unsupported("its arguments depend on the input")
        results = self.positions.evaluate(node, [positions(call.x.shape), *call.operands[1:]])
        if node.op_type == "Shape":
            return results[0]
        return tuple(None if index is None else b.pick(call.x, index) for index in results)

    def _kind(self, node: onnx.NodeProto, operands: Sequence[Any]) -> tuple[int, bool]:
        """The type of the numbers that depend on the input, and whether they fit into single precision."""
        tensors = [(name, value) for name, value in zip(node.input, operands) if isinstance(value, Tensor)]
        kinds = {self.kinds[name] for name, _ in tensors}
        (kind, *others) = kinds
        floats = {value.dtype for value in operands if isinstance(value, np.ndarray) and value.dtype.kind == "f"}
        if others or (node.op_type not in _MIXED and floats - {np.dtype(REAL[kind])}):
            raise Unsupported("its operands have different types of numbers")
        return kind, all(value.node in self.single for _, value in tensors)

    def _remember(self, node: onnx.NodeProto, results: Sequence[Any], kind: int) -> None:
        for name, value in zip(node.output, results, strict=True):
            if isinstance(value, Tensor):
                cast = node.op_type == "Cast"
                self.kinds[name] = next(a.i for a in node.attribute if a.name == "to") if cast else kind
                if kind != DOUBLE and not cast:
                    self.single.add(value.node)

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """What the node says, and the defaults of the operator where it says nothing.

        The defaults come from ONNX's own table, where they are numbers of single precision.
        """
        schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
        given = {a.name: a for a in node.attribute}
        return {name: onnx.helper.get_attribute_value(a) for name, a in (defaults | given).items()}

    def _unknown(self, name: str, tensors: Sequence[Tensor]) -> Any:
        shape = self.shapes.get(name)
        self.kinds[name] = self.source.kind
        return Opaque() if shape is None else self.build.unknown(shape, tensors)


def _inferred(model: onnx.ModelProto) -> dict[str, tuple[int, ...] | None]:
    """Shapes of all values, where they can be inferred; they serve messages and unknown operators only."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # an unknown operator must not hide behind a failure of the inference
        return {}
    shapes: dict[str, tuple[int, ...] | None] = {}
    for value in (*graph.value_info, *graph.output):
        kind = value.type.tensor_type
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        known = kind.HasField("shape") and None not in sizes
        shapes[value.name] = tuple(int(s or 0) for s in sizes) if known else None
    return shapes


_NAMES = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast CastLike Ceil Celu Clip Compress Concat Constant ConstantOfShape Cos Cosh CumSum DepthToSpace
    DequantizeLinear Div Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm
    Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax
    MatMul Max Mean Min Mish Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow QuantizeLinear Range Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Sinh Size Slice
    Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK
    Transpose Trilu Unsqueeze Where Xor"""
EVALUATED: Final = frozenset(_NAMES.split())
"""Operators that give the same result each time, in time that grows as their operands and results do."""

_ALWAYS = 2**22
"""Numbers that operators on constants may give together in any model."""

_TIMES = 8
"""Beyond that, so many times the numbers that the model stores."""

_PASSED_ON = 4096
"""Operands of at most so many numbers tell the inference of shapes their values, not only their shapes."""


class Constants:
    """Evaluates operators on constants, within what the model may ask for."""

    def __init__(self, opsets: Any, stored: int) -> None:
        self.opsets = opsets
        self.left = _ALWAYS + _TIMES * stored

    def evaluate(self, node: onnx.NodeProto, operands: Sequence[Array | None]) -> list[Array | None]:
        """The results of an operator, None where it leaves one out."""
        if node.op_type not in EVALUATED:
            raise Unsupported("it is not evaluated on constants, because it may be random, slow or unknown")
        if any(a.type in (a.SPARSE_TENSOR, a.SPARSE_TENSORS) for a in node.attribute):
            raise Unsupported("it has a sparse value; store it dense")
        feeds = {name: value for name, value in zip(node.input, operands) if name and value is not None}
        names = [name for name in node.output if name]
        self.left -= self._numbers(node, feeds, names)
        if self.left < 0:
            raise Unsupported("operators on constants would make far more numbers than the model stores")
        graph = onnx.helper.make_graph(
            [node],
            "constant",
            [onnx.ValueInfoProto(name=name) for name in feeds],
            [onnx.ValueInfoProto(name=name) for name in names],
        )
        try:
            evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=self.opsets))
            with np.errstate(all="ignore"):
                found = dict(zip(names, [np.asarray(value) for value in evaluator.run(None, feeds)], strict=True))
        except Exception as error:  # whatever the evaluator dislikes
            raise Unsupported(f"it cannot be evaluated ({type(error).__name__})") from None
        return [found.get(name) for name in node.output]

    def _numbers(self, node: onnx.NodeProto, feeds: dict[str, Array], names: list[str]) -> int:
        """How many numbers the results will have, by inference of shapes, before they are made."""
        older = node.op_type == "Slice" and len(node.input) == 1  # of operator sets before 10: no inference
        if node.op_type in ("NonZero", "Compress") or older:  # no more than there are, times the axes
            return sum(value.size * max(value.ndim, 1) for value in feeds.values())
        small = {name: value for name, value in feeds.items() if value.size <= _PASSED_ON}
        kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
        graph = onnx.helper.make_graph(
            [node],
            "sizes",
            [onnx.helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in feeds.items()],
            [onnx.ValueInfoProto(name=name) for name in names],
            [numpy_helper.from_array(value, name) for name, value in small.items()],
        )
        try:
            model = onnx.helper.make_model(graph, opset_imports=self.opsets)
            outputs = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output
        except Exception as error:  # of classes of its own
            raise Unsupported(f"its operands do not fit ({type(error).__name__})") from None
        total = 0
        for output in outputs:
            kind = output.type.tensor_type
            if not kind.HasField("shape") or not all(d.HasField("dim_value") for d in kind.shape.dim):
                raise Unsupported("the size of its result on these constants is not known before it is made")
            sizes = [max(int(d.dim_value), 0) for d in kind.shape.dim]
            total += int(np.prod(np.array(sizes, dtype=object))) if sizes else 1
        return total


def _stored_arrays(graph: onnx.GraphProto) -> dict[str, Array]:
    """The initializers as arrays; those in attributes can be read as well.

    Do this first: onnx's inference of shapes believes a tensor's size, and counts to it.
    """
    if graph.sparse_initializer:
        raise UnreadableModel("the model has sparse initializers; store them dense")
    for node in graph.node:
        for attribute in node.attribute:
            for tensor in (*attribute.tensors, *([attribute.t] if attribute.HasField("t") else ())):
                _tensor_array(tensor)
            for part in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                _stored_arrays(part)
    arrays = {tensor.name: _tensor_array(tensor) for tensor in graph.initializer}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise UnreadableModel(f"{shown(name)} holds {int(np.isnan(array).sum())} NaN; train or export it again")
    return arrays


def _tensor_array(tensor: onnx.TensorProto) -> Array:
    """A stored tensor as an array; its numbers must be in the model."""
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError("they are in another file, which onnx.load(path) reads")
        array = numpy_helper.to_array(tensor)
        if array.shape != tuple(tensor.dims):  # a negative size would be guessed
            raise ValueError(f"its shape is {list(tensor.dims)}")
    except Exception as error:  # whatever a damaged tensor makes of the decoder
        raise UnreadableModel(f"the numbers of {shown(tensor.name)} cannot be read: {line(error)}") from None
    return np.asarray(array)
