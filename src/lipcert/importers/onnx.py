"""ONNX files: protocol buffers, read as data; batch dimension one."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers import faithful
from lipcert.importers.builder import PART, Room, Tensor, Unsupported
from lipcert.importers.faithful import Original, confirm
from lipcert.importers.graph import Graph
from lipcert.importers.lowering import Imported, lower
from lipcert.importers.untrusted import LARGEST_INPUT, few, line, shown
from lipcert.importers.windows import positions
from lipcert.model.arrays import Array

try:
    import onnx
    from onnx import inliner, numpy_helper, version_converter
    from onnx.reference import ReferenceEvaluator
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading ONNX models needs onnx: pip install "lipcert[onnx]"') from None

from lipcert.importers.onnx_ops import ARRANGING, MISSING, OPERATORS, SEVERAL, OnnxBuilder

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
REAL: Final[dict[int, Any]] = {onnx.TensorProto.FLOAT16: np.float16, FLOAT: np.float32, DOUBLE: np.float64}
"""The types of numbers that depend on the input."""

_ON_CONSTANTS = """
    Acos Acosh And ArgMax ArgMin Asin Asinh Atanh CastLike Ceil Compress Constant ConstantOfShape Cosh CumSum
    DequantizeLinear Equal EyeLike Floor GatherElements GatherND Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual
    Mod NonZero Not OneHot Or QuantizeLinear Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd
    ReduceSumSquare Round ScatterElements ScatterND Sign Sinh Size Swish Tan ThresholdedRelu Trilu Where Xor"""
_SLOW = re.compile("Conv|Dropout|GRU|LSTM|Norm|Pool|RNN|Resize|Upsample")
EVALUATED: Final = {*_ON_CONSTANTS.split(), *ARRANGING, *(name for name in OPERATORS if not _SLOW.search(name))}
"""Operators that give the same result each time, in time that grows as their operands and results do."""

_PASSED_ON = 4096
"""Operands of at most so many numbers tell the inference of shapes their values, not only their shapes."""


OLDEST_OPSET = 7
"""Before it, broadcasting followed other rules; older models are converted."""

MOST_OPERATORS = 10_000
"""Operators of a model whose functions are written out."""


def read_onnx(
    path: Path | onnx.ModelProto,
    *,
    input_shape: Sequence[int] | None,
    drop_softmax: bool,
    points: Any,
    fixed: Mapping[str, Any] | None = None,
    output: str | int | None = None,
) -> Imported:
    """The network of an ONNX model, nothing of which is executed; the options are those of ``lipcert.load``.

    The shape of the input is needed only where the model leaves sizes open.
    """
    judge = _open(path)
    _one_in_one_out(judge.graph, fixed or {}, output)
    if drop_softmax:
        _drop_softmax(judge.graph)
    source, opset = _source(judge.graph, input_shape), _opset_of(judge)
    stored_arrays(judge.graph)  # can all be read, before onnx looks at them
    model = _prepared(judge, opset)
    graph = Reader(model, source, stored_arrays(model.graph), max(opset, OLDEST_OPSET)).read()
    try:
        lowered = lower(graph)
    except InvalidInput as error:  # numbers that are not finite
        raise UnreadableModel(f"the model is no network: {error}") from None
    confirm(lowered.network, [_original(judge, source)], points)
    parameters = sum(int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type in (FLOAT, DOUBLE))
    shape = source.shape[1:] if source.batched else source.shape
    vector = sum(size > 1 for size in shape) < 2  # the numbers of an image have no names
    inputs, outputs = lowered.network.inputs if vector else 0, lowered.network.outputs
    called = _numbered(source.name, inputs), _numbered(judge.graph.output[0].name, outputs)
    return Imported(replace(lowered.network, input_shape=shape, names=called), lowered.origins, parameters)


def _numbered(name: str, count: int) -> tuple[str, ...]:
    """What the numbers of a tensor are called."""
    return (shown(name),) if count == 1 else tuple(f"{shown(name)}[{k}]" for k in range(count))


def _open(path: Path | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(path, onnx.ModelProto):
        model = copy.deepcopy(path)
    else:
        try:
            model = onnx.load(path)
        except Exception as error:  # a damaged file makes the parser fail in any way it likes
            raise UnreadableModel(f"{path} is not a readable ONNX file ({type(error).__name__}: {error})") from error
    if not model.graph.node and not model.graph.output:
        raise UnreadableModel(f"{path if isinstance(path, Path) else 'the model'} holds no graph")
    return model


def _one_in_one_out(graph: onnx.GraphProto, fixed: Mapping[str, Any], chosen: str | int | None) -> None:
    """Store given values in the place of inputs, drop all outputs but the chosen one, and refuse what is left over."""
    inputs, names = {entry.name: entry for entry in _inputs(graph)}, [entry.name for entry in graph.output]
    if strange := [name for name in fixed if name not in inputs]:
        raise InvalidInput(f"fixed names {few(strange)}; the model's inputs are {few(inputs)}")
    for name, value in fixed.items():
        tensor, array, plain = inputs[name].type.tensor_type, np.asarray(value), not hasattr(value, "dtype")
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        sizes = [d.dim_value or None for d in tensor.shape.dim]
        one = [size or 1 for size in sizes]
        array = array.reshape(one) if plain and array.size == math.prod(one) else array  # one after the other
        fits = len(sizes) == array.ndim and all(s in (None, n) for s, n in zip(sizes, array.shape))
        same = array.dtype.kind in "fiub" and ((kind.kind == "f" and plain) or (array.astype(kind) == array).all())
        if not (fits and same):
            came = f"{'others, ' if fits else ''}{array.dtype} of shape {array.shape}"
            raise InvalidInput(f"fixed[{name!r}] must be numbers of type {kind} and shape {sizes}, got {came}")
        graph.initializer.append(numpy_helper.from_array(array.astype(kind), name))
        graph.input.remove(inputs[name])
    called = {str(k - len(names)): name for k, name in enumerate(names * 2)} | dict(zip(names, names))
    if chosen is not None and (isinstance(chosen, bool) or str(chosen) not in called):
        raise InvalidInput(f"output must be one of {few(names)}, or its number, got {chosen!r}")
    for entry in list(graph.output):
        if chosen is not None and entry.name != called[str(chosen)]:
            graph.output.remove(entry)
    for entries, what, advice in (
        (_inputs(graph), "inputs", "give all but one as fixed={name: values} of lipcert.load"),
        (graph.output, "outputs", "choose one with output=name of lipcert.load"),
    ):
        if len(entries) != 1:
            names, advice = [entry.name for entry in entries], f": {advice}" if entries else ""
            raise UnreadableModel(f"the model has {len(names)} {what} ({few(names)}); a network has one{advice}")


def _inputs(graph: onnx.GraphProto) -> list[Any]:
    """The inputs that have no stored value."""
    stored = {tensor.name for tensor in graph.initializer}
    return [entry for entry in graph.input if entry.name not in stored]


def _opset_of(model: onnx.ModelProto) -> int:
    versions = {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")} or {1}
    if len(versions) > 1 or not 1 <= max(versions) <= onnx.defs.onnx_opset_version():
        found = f"{few(sorted(versions))}; this onnx knows one at a time, up to {onnx.defs.onnx_opset_version()}"
        raise UnreadableModel(f"the model uses operator set {found}")
    return int(max(versions))


def _prepared(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The same model, proper by onnx's own rules, with its functions written out, in an operator set that is read.

    Inputs and outputs without a shape are let pass.
    """
    model = copy.deepcopy(model)
    for entry in (*model.graph.input, *model.graph.output):
        entry.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
        if model.functions:
            _check_functions(model)
            model = inliner.inline_local_functions(model)
        return model if opset >= OLDEST_OPSET else version_converter.convert_version(model, OLDEST_OPSET)
    except LipcertError:
        raise
    except Exception as error:  # of classes of onnx's own, or of its C++ part
        reason = shown(" ".join(str(error).split()), 300)
        raise UnreadableModel(f"onnx finds that the model is not proper ONNX: {reason}") from None


def _check_functions(model: onnx.ModelProto) -> None:
    sizes: dict[tuple[str, str], int] = {}
    for _ in range(len(model.functions)):  # in any order, so that each round reaches one level deeper
        for f in model.functions:
            count = sum(sizes.get((n.domain, n.op_type), 1) for n in f.node)
            sizes[f.domain, f.name] = min(count, MOST_OPERATORS)
    if sum(sizes.get((node.domain, node.op_type), 1) for node in model.graph.node) >= MOST_OPERATORS:
        raise UnreadableModel(f"the model's functions, written out, are {MOST_OPERATORS} operators or more")


def _drop_softmax(graph: onnx.GraphProto) -> None:
    """Let the output be what the final softmax receives, and leave everything else."""
    output = graph.output[0]
    last = next((node for node in graph.node if output.name in node.output), None)
    if last is None or last.op_type not in ("Softmax", "LogSoftmax") or not last.input:
        kind = "none" if last is None else last.op_type
        raise InvalidInput(f"drop_softmax=True, but the last operation is {kind}, not a softmax")
    output.CopyFrom(onnx.helper.make_tensor_value_info(last.input[0], output.type.tensor_type.elem_type, None))


def _source(graph: onnx.GraphProto, given: Sequence[int] | None) -> Source:
    """The model's one input, with batch one."""
    (entry,) = _inputs(graph)
    kind = entry.type.tensor_type
    if kind.elem_type not in REAL:
        names = {value: name.lower() for name, value in onnx.TensorProto.DataType.items()}
        came = names.get(kind.elem_type, "unknown").replace("undefined", "no tensor")
        raise UnreadableModel(f"the input {entry.name} has numbers of type {came}; a network takes real numbers")
    sizes = [d.dim_value if d.dim_value > 0 else None for d in kind.shape.dim] if kind.HasField("shape") else None
    shape, batched = _shape(entry.name, sizes, given)
    if math.prod(shape) > LARGEST_INPUT:
        raise UnreadableModel(f"the input {entry.name} has shape {shape}, more than {LARGEST_INPUT} numbers")
    return Source(entry.name, shape, kind.elem_type, batched, (sizes or [None])[0] or 1 if batched else 1)


def _shape(name: str, sizes: list[int | None] | None, given: Sequence[int] | None) -> tuple[tuple[int, ...], bool]:
    """The input's shape, and whether its first axis is the batch."""
    if given is not None:
        batched = sizes is None or len(sizes) == len(given) + 1
        rest = given if sizes is None else sizes[1:] if batched else sizes
        if len(rest) != len(given) or any(a not in (None, b) for a, b in zip(rest, given)):
            raise InvalidInput(f"input_shape {given} does not fit the model's input {name} of shape {sizes}")
        return ((1, *given) if batched else tuple(given)), batched
    if sizes == []:
        raise UnreadableModel(f"the model's input {name} is a single number without axes; give it an axis")
    if sizes is None or None in sizes[1:] or sizes == [None]:
        raise InvalidInput(f"the model leaves sizes of its input {name} open; give input_shape, without the batch")
    batched = len(sizes) > 1
    if batched and sizes[0] not in (None, 1):
        raise InvalidInput(
            f"the model's input {name} has shape {sizes}, {sizes[0]} at a time; give input_shape={tuple(sizes[1:])}"
            f" to read it with one at a time, or input_shape={tuple(sizes)} if the first axis is no batch"
        )
    return (1 if batched else int(sizes[0] or 1), *(int(s or 1) for s in sizes[1:])), batched


def _original(model: onnx.ModelProto, source: Source) -> Original:
    """The model as the file has it, run by onnxruntime, or by onnx itself where that is not installed or refuses."""
    for library, open_model in (("onnxruntime", _runtime), ("onnx.reference", ReferenceEvaluator)):
        try:
            judge: Any = open_model(model)
            judge.run(None, source.feed(np.zeros(math.prod(source.shape))))  # some refuse operators when they meet them
            break
        except Exception as error:  # of classes of their own
            reason = f"{library}: {type(error).__name__}: {line(error)}"
    else:
        raise UnreadableModel(f"nobody can run the model ({reason})")

    def evaluate(x: Array) -> Array:
        try:
            with np.errstate(all="ignore"):  # large inputs may overflow
                found = np.asarray(judge.run(None, source.feed(x))[0], dtype=float)
        except Exception as error:  # the libraries' own classes
            raise UnreadableModel(f"{library} cannot run the model ({type(error).__name__}: {line(error)})") from error
        return found if source.batch == 1 else found.reshape(source.batch, -1)[0]

    precisions: dict[int, faithful.Precision] = {DOUBLE: faithful.DOUBLE, onnx.TensorProto.FLOAT16: faithful.HALF}
    return Original(evaluate, precisions.get(source.kind, faithful.SINGLE), library)


def _runtime(model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


# the walk over the operators; types, shapes and constants come from onnx itself ------------------------------


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
        types, misfit = self._inferred(node, operands)
        shapes = [_sizes(types[name]) if name in types else None for name in node.output]
        depends = any(isinstance(operand, Tensor) for operand in operands)

        def read(opaque: bool) -> Sequence[Any] | None:
            self._check(node, depends or opaque)
            if opaque:
                return None
            if misfit:
                raise Unsupported(f"its operands do not fit ({misfit})")
            made = [shape for name, shape in zip(node.output, shapes) if name]
            return (self._translated if depends else self._evaluated)(node, operands, made)

        label = node.name or next(filter(None, node.output), node.op_type)
        results = self.build.step(label, node.op_type, shapes, operands, read)
        for name, result in zip(node.output, results, strict=True):
            self.values[name] = result
            self.types[name] = _type(result) if isinstance(result, np.ndarray) else types.get(name, onnx.TypeProto())
            cast = node.op_type == "Cast" and node.input[0] in self.single
            if cast or self.types[name].tensor_type.elem_type != DOUBLE:
                self.single.add(name)

    def _inferred(self, node: onnx.NodeProto, operands: Sequence[Any]) -> tuple[dict[str, onnx.TypeProto], str]:
        """The types of the results by onnx's own rules, or why the operands do not fit."""
        if not onnx.defs.has(node.op_type, self.opset, ""):
            return {}, ""
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

    def _check(self, node: onnx.NodeProto, depends: bool) -> None:
        """Refuse an operator that nothing is known of, or that is not used as the standard says."""
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"operators of the domain {node.domain} are not known")
        if any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            raise Unsupported("control flow has no translation")
        if depends and node.op_type not in (*OPERATORS, *ARRANGING):
            raise Unsupported(MISSING.get(node.op_type, f"unknown operator; {PART}"))
        schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        for names, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
            if any(not name and formal[min(k, len(formal) - 1)].option != optional for k, name in enumerate(names)):
                raise Unsupported("it leaves out an operand or a result that it must have")  # onnxruntime would crash

    def _translated(self, node: onnx.NodeProto, operands: Sequence[Any], shapes: Sequence[Any]) -> Sequence[Any]:
        """The results of an operator, some operand of which depends on the input."""
        if node.op_type == "Slice" and None in shapes:  # of operator sets before 10; it makes nothing larger
            shapes = [operands[0].shape]
        for shape in shapes:
            if shape is None:
                raise Unsupported("the shape of its result cannot be told from those of its operands")
            self.build.room.take(8, *shape)  # several arrays are made for each element
        named, several = self._attributes(node), node.op_type in SEVERAL
        signals = [name for name, operand in zip(node.input, operands) if isinstance(operand, Tensor)]
        if not several:
            schema = onnx.defs.get_schema(node.op_type, self.opset, "")
            named |= {f.name: value for f, value in zip(schema.inputs[1:], operands[1:]) if value is not None}
            if not isinstance(operands[0], Tensor):
                raise Unsupported("its first operand is a constant and another one is not")
            if moved := [name for name, value in named.items() if isinstance(value, Tensor)]:
                raise Unsupported(f"its {moved[0]} depends on the input")
        self.build.dtype = REAL.get(self.types[signals[0]].tensor_type.elem_type, np.float64)
        self.build.single = self.single.issuperset(signals)
        self.build.outputs, self.build.opset = len(node.output), self.opset
        with np.errstate(all="ignore"):  # numbers that are not finite are refused at the end
            if node.op_type in ARRANGING or (node.op_type == "Pad" and named["mode"] != "constant"):
                result = self._arranged(node, operands)
            else:
                result = OPERATORS[node.op_type](self.build, *(operands if several else operands[:1]), **named)
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
