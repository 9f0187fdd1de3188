"""The walk over an ONNX model's operators that writes our graph; types, shapes and constants come from onnx itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from lipcert.errors import LipcertError, UnreadableModel
from lipcert.importers.builder import Opaque, Positions, Room, Tensor, Unsupported
from lipcert.importers.graph import Graph
from lipcert.importers.onnx_ops import ARRANGING, OPERATORS, SEVERAL, OnnxBuilder, softmax
from lipcert.importers.registry import of_function
from lipcert.importers.untrusted import line, shown
from lipcert.importers.windows import positions
from lipcert.model.arrays import Array

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
REAL: Final[dict[int, Any]] = {onnx.TensorProto.FLOAT16: np.float16, FLOAT: np.float32, DOUBLE: np.float64}
"""The types of numbers that depend on the input."""

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

_PASSED_ON = 4096
"""Operands of at most so many numbers tell the inference of shapes their values, not only their shapes."""


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
    """Walks the operators and writes the graph. ``values`` has what each name stands for, ``types`` its ONNX type."""

    def __init__(self, model: onnx.ModelProto, source: Source, arrays: dict[str, Array], opset: int) -> None:
        self.model, self.opset = model, opset
        stored = sum(array.size for array in arrays.values())
        self.build = OnnxBuilder(source.shape, Room(stored))
        self.constants = Room(stored, 2**22, 8)
        self.values: dict[str, Any] = {**arrays, source.name: self.build.input}
        self.types = {name: _type(array) for name, array in arrays.items()}
        self.types[source.name] = onnx.helper.make_tensor_type_proto(source.kind, source.shape)
        self.single = {source.name} if source.kind != DOUBLE else set()  # values that are numbers of single precision

    def read(self) -> Graph:
        """The finished graph, or an error with every offender."""
        last = self.model.graph.output[0].name
        needed, nodes = {last}, []
        for node in reversed(self.model.graph.node):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        for node in reversed(nodes):
            self._node(node)
        if last not in self.values:
            raise UnreadableModel(f"nothing in the model gives its output {shown(last)}")
        return self.build.finish(self.values[last])

    def _node(self, node: onnx.NodeProto) -> None:
        operands = [self.values[name] if name else None for name in node.input]
        tensors = [operand for operand in operands if isinstance(operand, Tensor)]
        names = [name for name in node.output if name]
        types, misfit = self._inferred(node, operands)
        shapes = {name: _sizes(kind) for name, kind in types.items()}
        results: Sequence[Any] | None = None
        with self.build.reading(node.name or (names or [node.op_type])[0], node.op_type, shapes.get(names[0])):
            if any(isinstance(operand, Positions) for operand in operands):
                raise Unsupported(Positions.reason)
            opaque = any(isinstance(operand, Opaque) for operand in operands)
            self._check(node, bool(tensors), opaque)
            if not opaque:
                if misfit:
                    raise Unsupported(f"its operands do not fit ({misfit})")
                read = self._translated if tensors else self._evaluated
                results = read(node, operands, [shapes.get(name) for name in names])
        if results is None:
            made = [shapes.get(name) for name in node.output]
            results = [Opaque() if shape is None else self.build.unknown(shape, tensors) for shape in made]
        for name, result in zip(node.output, results, strict=True):
            self.values[name] = result
            self.types[name] = _type(result) if isinstance(result, np.ndarray) else types.get(name, onnx.TypeProto())
            cast = node.op_type == "Cast" and node.input[0] in self.single
            if cast or self.types[name].tensor_type.elem_type != DOUBLE:
                self.single.add(name)

    def _inferred(self, node: onnx.NodeProto, operands: Sequence[Any]) -> tuple[dict[str, onnx.TypeProto], str]:
        """The types of the results by onnx's own rules, or why the operands do not fit."""
        if not onnx.defs.has(node.op_type, self.opset, ""):
            same = self.types[node.input[0]] if node.input else onnx.TypeProto()
            return ({node.output[0]: same} if of_function(node.domain, node.op_type) else {}), ""
        data = {
            name: numpy_helper.from_array(value, name)
            for name, value in zip(node.input, operands, strict=True)
            if isinstance(value, np.ndarray) and value.size <= _PASSED_ON
        }
        types = {name: self.types[name] for name in node.input if name}
        schema, opsets = onnx.defs.get_schema(node.op_type, self.opset, ""), list(self.model.opset_import)
        try:
            return onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, opsets), ""
        except Exception as error:  # of classes of its own
            return {}, line(error)

    def _activation(self, node: onnx.NodeProto) -> Any:
        """The activation that is registered for the function that a node calls."""
        known = any((f.domain, f.name) == (node.domain, node.op_type) for f in self.model.functions)
        return of_function(node.domain, node.op_type) if known else None

    def _check(self, node: onnx.NodeProto, depends: bool, opaque: bool) -> None:
        """Refuse an operator that nothing is known of, or that is not used as the standard says."""
        if self._activation(node) is not None:
            if len(node.input) != 1 or len(node.output) != 1 or node.attribute or not depends:
                raise Unsupported("it is registered as an activation, and must take one operand that is no constant")
            return
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"operators of the domain {node.domain} are not known")
        if any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            raise Unsupported("control flow has no translation")
        operator = OPERATORS.get(node.op_type)
        if (depends or opaque) and operator is softmax:
            softmax()
        if (depends or opaque) and operator is None and node.op_type not in ARRANGING:
            raise Unsupported("unknown operator")
        schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        for names, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
            if any(not name and formal[min(k, len(formal) - 1)].option != optional for k, name in enumerate(names)):
                raise Unsupported("it leaves out an operand or a result that it must have")  # onnxruntime would crash

    def _translated(self, node: onnx.NodeProto, operands: Sequence[Any], shapes: Sequence[Any]) -> Sequence[Any]:
        """The results of an operator, some operand of which depends on the input."""
        if (row := self._activation(node)) is not None:
            return [self.build.apply(operands[0], row)]
        if node.op_type == "Slice" and None in shapes:  # of operator sets before 10; it makes nothing larger
            shapes = [operands[0].shape]
        for shape in shapes:
            if shape is None:
                raise Unsupported("the shape of its result cannot be told from those of its operands")
            self.build.room.take(8, *shape)  # several arrays are made for each element
        named = self._attributes(node)
        several = node.op_type in SEVERAL
        if not several:
            schema = onnx.defs.get_schema(node.op_type, self.opset, "")
            named |= {f.name: value for f, value in zip(schema.inputs[1:], operands[1:]) if value is not None}
            if not isinstance(operands[0], Tensor):
                raise Unsupported("its first operand is a constant and another one is not")
            if moved := [name for name, value in named.items() if isinstance(value, Tensor)]:
                raise Unsupported(f"its {moved[0]} depends on the input")
        first = next(name for name, value in zip(node.input, operands) if isinstance(value, Tensor))
        self.build.dtype = REAL.get(self.types[first].tensor_type.elem_type, np.float64)
        self.build.single = all(name in self.single for name, v in zip(node.input, operands) if isinstance(v, Tensor))
        self.build.outputs = len(node.output)
        try:
            with np.errstate(all="ignore"):  # numbers that are not finite are refused at the end
                if node.op_type in ARRANGING or (node.op_type == "Pad" and named["mode"] != "constant"):
                    result = self._arranged(node, operands)
                else:
                    given = operands if several else operands[:1]
                    result = OPERATORS[node.op_type](self.build, *given, **named)
        except LipcertError:  # says itself what is wrong
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError) as error:
            raise Unsupported(f"it is used in an unknown way: {error}") from None
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(node.output):
            raise Unsupported(f"it gives {len(results)} results and the model expects {len(node.output)}")
        return results

    def _arranged(self, node: onnx.NodeProto, operands: Sequence[Any]) -> Any:
        """What an operator that only moves elements makes of x: it is evaluated on the elements' positions."""
        results = self._run(node, [positions(operands[0].shape), *operands[1:]])
        if node.op_type == "Shape":
            return results[0]
        return tuple(None if index is None else self.build.pick(operands[0], index) for index in results)

    def _evaluated(self, node: onnx.NodeProto, operands: Sequence[Any], shapes: Sequence[Any]) -> Sequence[Any]:
        if node.op_type not in EVALUATED:
            raise Unsupported("it is not evaluated on constants, because it may be random, slow or unknown")
        if any(a.type in (a.SPARSE_TENSOR, a.SPARSE_TENSORS) for a in node.attribute):
            raise Unsupported("it has a sparse value; store it dense")
        for shape in shapes:
            if shape is None and node.op_type in ("NonZero", "Compress"):  # no more than there are, times the axes
                shape = (sum(v.size * max(v.ndim, 1) for v in operands if v is not None),)
            if shape is None:
                raise Unsupported("the size of its result on these constants is not known before it is made")
            self.constants.take(*shape)
        return self._run(node, operands)

    def _run(self, node: onnx.NodeProto, operands: Sequence[Array | None]) -> list[Array | None]:
        feeds = {name: value for name, value in zip(node.input, operands, strict=True) if name}
        names = [name for name in node.output if name]
        opsets = list(self.model.opset_import)
        function = onnx.helper.make_function("", "constant", list(feeds), names, [node], opsets)
        try:
            with np.errstate(all="ignore"):
                found = dict(zip(names, ReferenceEvaluator(function).run(None, feeds, {}), strict=True))
        except Exception as error:  # whatever the evaluator dislikes
            raise Unsupported(f"it cannot be evaluated ({type(error).__name__})") from None
        return [np.asarray(found[name]) if name else None for name in node.output]

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """What the node says, and the defaults of the operator where it says nothing.

        The defaults come from ONNX's own table, where they are numbers of single precision.
        """
        known = onnx.defs.get_schema(node.op_type, self.opset, "").attributes
        defaults = {name: a.default_value for name, a in known.items() if a.default_value.name}
        found = defaults | {a.name: a for a in node.attribute}
        values = {name: onnx.helper.get_attribute_value(a) for name, a in found.items()}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def _type(array: Array) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _sizes(kind: onnx.TypeProto) -> tuple[int, ...] | None:
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return tuple(max(int(d.dim_value), 0) for d in tensor.shape.dim)


def stored_arrays(graph: onnx.GraphProto) -> dict[str, Array]:
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
                stored_arrays(part)
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
        if min(tensor.dims, default=0) < 0:  # a negative size would be guessed
            raise ValueError(f"its shape is {list(tensor.dims)}")
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # whatever a damaged tensor makes of the decoder
        raise UnreadableModel(f"the numbers of {shown(tensor.name)} cannot be read: {line(error)}") from None
