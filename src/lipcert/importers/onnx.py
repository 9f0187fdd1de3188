"""ONNX files: protocol buffers, read as data; batch dimension one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers.builder import SOFTMAX, Builder, Tensor, Unsupported
from lipcert.importers.faithful import Imported, Original, confirm
from lipcert.importers.graph import Graph
from lipcert.importers.lowering import lower
from lipcert.typing import Array

try:
    import onnx
    from onnx import inliner, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading ONNX models needs onnx: pip install "lipcert[onnx]"') from None

from lipcert.importers.onnx_ops import OPERATORS, Call, Operator, softmax

OLDEST_OPSET = 7
"""Before it, broadcasting followed other rules."""


def read_onnx(
    path: Path | onnx.ModelProto,
    *,
    input_shape: Sequence[int] | None = None,
    drop_softmax: bool = False,
    points: Any = None,
) -> Imported:
    """The network of an ONNX model, as it computes on a batch of one.

    Parameters
    ----------
    path
        The file; nothing in it is executed.
    input_shape
        Without the batch; needed only where the model leaves sizes open.
    drop_softmax
        Take what a final softmax receives as the output.
    points
        Inputs, flat, at which to compare the network with the model besides random ones.
    """
    model = _open(path)
    if drop_softmax:
        _drop_softmax(model.graph)
    source = _fix_shape(model, input_shape)
    network = lower(_Reader(model, source.shape).read())
    confirm(network.network, _original(model, source), points)
    real = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    parameters = sum(int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type in real)
    return Imported(network, source.shape[1:] if source.batched else source.shape, parameters)


@dataclass(frozen=True)
class _Source:
    """The model's input: its shape, batch included if it has one."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    batched: bool


def _open(path: Path | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(path, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(path)
    else:
        try:
            model = onnx.load(path)
        except Exception as error:  # a damaged file makes the parser fail in any way it likes
            raise UnreadableModel(f"{path} is not a readable ONNX file ({type(error).__name__}: {error})") from error
    if not model.graph.node and not model.graph.output:
        raise UnreadableModel(f"{path} holds no graph")
    if model.functions:
        model = inliner.inline_local_functions(model)
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version < OLDEST_OPSET:
        raise UnreadableModel(
            f"the model uses operator set {version}, the oldest that is read is {OLDEST_OPSET};"
            " convert it with onnx.version_converter"
        )
    given = {i.name for i in model.graph.initializer}
    inputs = [i.name for i in model.graph.input if i.name not in given]
    outputs = [o.name for o in model.graph.output]
    for names, what in ((inputs, "inputs"), (outputs, "outputs")):
        if len(names) != 1:
            raise UnreadableModel(f"the model has {len(names)} {what} ({', '.join(names)}); a network has one")
    return model


def _drop_softmax(graph: onnx.GraphProto) -> None:
    """Let the output be what the final softmax receives."""
    output = graph.output[0]
    last = next((node for node in graph.node if output.name in node.output), None)
    if last is None or last.op_type not in ("Softmax", "LogSoftmax"):
        kind = "none" if last is None else last.op_type
        raise InvalidInput(f"drop_softmax=True, but the last operation is {kind}, not a softmax")
    graph.node.remove(last)
    output.CopyFrom(onnx.helper.make_tensor_value_info(last.input[0], output.type.tensor_type.elem_type, None))


def _fix_shape(model: onnx.ModelProto, given: Sequence[int] | None) -> _Source:
    """Write the input's shape, with batch one, into the model."""
    weights = {i.name for i in model.graph.initializer}
    entry = next(i for i in model.graph.input if i.name not in weights)
    kind = entry.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else np.dtype(np.float32)
    if not np.issubdtype(dtype, np.floating):
        raise UnreadableModel(f"the input {entry.name} has numbers of type {dtype}; a network takes real numbers")
    sizes = [d.dim_value if d.dim_value > 0 else None for d in kind.shape.dim] if kind.HasField("shape") else None
    shape, batched = _shape(entry.name, sizes, given)
    del kind.shape.dim[:]
    for size in shape:
        kind.shape.dim.add().dim_value = size
    del model.graph.value_info[:]  # shapes inside are inferred again
    output = model.graph.output[0]
    output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, output.type.tensor_type.elem_type, None))
    return _Source(entry.name, shape, dtype, batched)


def _shape(name: str, sizes: list[int | None] | None, given: Sequence[int] | None) -> tuple[tuple[int, ...], bool]:
    """The input's shape, and whether its first axis is the batch."""
    if given is not None:
        chosen = tuple(int(s) for s in np.atleast_1d(np.asarray(given)))
        if not chosen or min(chosen) < 1:
            raise InvalidInput(f"input_shape must be positive sizes without the batch, got {given}")
        batched = sizes is None or len(sizes) == len(chosen) + 1
        rest = [] if sizes is None else sizes[1:] if batched else sizes
        fits = sizes is None or (len(rest) == len(chosen) and all(a in (None, b) for a, b in zip(rest, chosen)))
        if not fits:
            raise InvalidInput(f"input_shape {given} does not fit the model's input {name} of shape {sizes}")
        return ((1, *chosen) if batched else chosen), batched
    if sizes is None or None in sizes[1:] or sizes == [None]:
        raise InvalidInput(f"the model leaves sizes of its input {name} open; give input_shape, without the batch")
    batched = len(sizes) > 1
    if batched and sizes[0] not in (None, 1):
        raise InvalidInput(
            f"the model's input {name} has shape {sizes}, {sizes[0]} at a time; give input_shape={tuple(sizes[1:])}"
            f" to read it with one at a time, or input_shape={tuple(sizes)} if the first axis is no batch"
        )
    return (1 if batched else int(sizes[0] or 1), *(int(s or 1) for s in sizes[1:])), batched


def _original(model: onnx.ModelProto, source: _Source) -> Original:
    """The model run by onnxruntime, or by onnx itself where that is not installed or refuses."""
    single = source.dtype != np.float64

    def feed(x: Array) -> dict[str, Array]:
        return {source.name: x.reshape(source.shape).astype(source.dtype)}

    run = _runtime(model)
    if run is not None:
        return Original(lambda x: run(feed(x)), single, "onnxruntime")
    evaluator = ReferenceEvaluator(model)

    def evaluate(x: Array) -> Array:
        (result,) = evaluator.run(None, feed(x))
        return np.asarray(result)

    return Original(evaluate, single, "onnx.reference")


def _runtime(model: onnx.ModelProto) -> Callable[[Mapping[str, Array]], Array] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # its error classes have no common name; onnx's own evaluator is the judge then
        return None
    return lambda feeds: np.asarray(session.run(None, dict(feeds))[0])


class _Opaque:
    """A result that is unknown together with its shape."""


class _Reader:
    """Walks the operators and writes the graph."""

    def __init__(self, model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
        self.model = model
        self.build = Builder(shape)
        self.opset = {o.domain: o.version for o in model.opset_import}
        self.shapes = _inferred(model)
        self.values: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        entry = next(i.name for i in model.graph.input if i.name not in self.values)
        self.values[entry] = self.build.input

    def read(self) -> Graph:
        """The finished graph, or an error with every offender."""
        if self.model.graph.sparse_initializer:
            raise UnreadableModel("the model has sparse initializers; store them dense")
        for node in self.model.graph.node:
            self._node(node)
        output = self.values[self.model.graph.output[0].name]
        if isinstance(output, np.ndarray):
            output = self.build.constant(output)
        return self.build.finish(output if isinstance(output, Tensor) else self.build.unknown((1,)))

    def _node(self, node: onnx.NodeProto) -> None:
        operands = [self.values.get(name) if name else None for name in node.input]
        tensors = [operand for operand in operands if isinstance(operand, Tensor)]
        names = [name for name in node.output if name]
        results: Sequence[Any] | None = None
        shape = self.shapes.get(names[0]) if names else None
        with self.build.reading(node.name or names[0], node.op_type, shape):
            operator = self._operator(node)
            if not any(isinstance(operand, _Opaque) for operand in operands):
                results = self._results(operator, node, operands, bool(tensors))
        if results is None:
            results = [self._unknown(name, tensors) for name in names]
        self.values.update(zip(names, results))

    def _operator(self, node: onnx.NodeProto) -> Operator | None:
        """What to do for an operator; None where it is known on constants only."""
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"operators of the domain {node.domain} are not known")
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            raise Unsupported("control flow has no translation")
        operator = OPERATORS.get(node.op_type)
        constant = all(isinstance(self.values.get(name), np.ndarray) for name in node.input if name)
        if not constant and (operator is None or operator is softmax):
            raise Unsupported(SOFTMAX if operator is softmax else "unknown operator")
        return operator

    def _results(
        self, operator: Operator | None, node: onnx.NodeProto, operands: Sequence[Any], depends: bool
    ) -> Sequence[Any]:
        if not depends:
            return _evaluated(node, operands, self.model.opset_import)
        assert operator is not None
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        version = self.opset.get("", self.opset.get("ai.onnx", OLDEST_OPSET))
        try:
            result = operator(self.build, Call(operands, attributes, version, len(node.output)))
        except LipcertError:  # says itself what is wrong
            raise
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise Unsupported(f"it is used in an unknown way: {error}") from None
        return result if isinstance(result, tuple) else (result,)

    def _unknown(self, name: str, tensors: Sequence[Tensor]) -> Any:
        shape = self.shapes.get(name)
        return _Opaque() if shape is None else self.build.unknown(shape, tensors)


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


def _evaluated(node: onnx.NodeProto, operands: Sequence[Array | None], opsets: Any) -> Sequence[Array]:
    """The results of an operator on constants, by onnx's own definition of it."""
    names = [name for name in node.input if name]
    feeds = {name: value for name, value in zip(node.input, operands) if name and value is not None}
    if len(feeds) != len(set(names)):
        raise Unsupported("an operand is missing")
    inputs = [onnx.ValueInfoProto(name=name) for name in feeds]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
    try:
        evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets))
        return [np.asarray(value) for value in evaluator.run(None, feeds)]
    except Exception as error:  # whatever the evaluator dislikes
        raise Unsupported(f"it cannot be evaluated ({type(error).__name__})") from None
