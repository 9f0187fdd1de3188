"""ONNX operators on constants: evaluated by onnx's own definition, if they always give the same and not too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from lipcert.importers.builder import Unsupported
from lipcert.model.arrays import Array

_NAMES = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast CastLike Ceil Celu Clip Compress Concat Constant ConstantOfShape Cos Cosh CumSum DequantizeLinear Div Elu Equal
    Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Mean Min Mish Mod Mul Neg
    NonZero Not OneHot Or PRelu Pad Pow QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements ScatterND
    Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Swish Tan Tanh
    ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where Xor"""
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
        if node.op_type in ("NonZero", "Compress"):  # no more than there are, times the axes
            return sum(value.size * max(value.ndim, 1) for value in feeds.values())
        small = {name: value for name, value in feeds.items() if value.size <= _PASSED_ON}
        kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
        graph = onnx.helper.make_graph(
            [node],
            "sizes",
            [onnx.helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in feeds.items()],
            [onnx.ValueInfoProto(name=name) for name in names],
            [onnx.numpy_helper.from_array(value, name) for name, value in small.items()],
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
