"""ONNX files: protocol buffers, read as data; batch dimension one."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers import faithful
from lipcert.importers.faithful import Imported, Original, confirm
from lipcert.importers.lowering.lower import lower
from lipcert.importers.registry import of_function
from lipcert.importers.untrusted import LARGEST_INPUT, few, line, shown
from lipcert.model.arrays import Array

try:
    import onnx
    from onnx import inliner, numpy_helper, version_converter
    from onnx.reference import ReferenceEvaluator
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading ONNX models needs onnx: pip install "lipcert[onnx]"') from None

from lipcert.importers.onnx_reader import DOUBLE, FLOAT, REAL, Reader, Source, stored_arrays

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
    _fix_inputs(judge.graph, fixed or {})
    _choose_output(judge.graph, output)
    _one_in_one_out(judge.graph)
    if drop_softmax:
        _drop_softmax(judge.graph)
    source, opset = _source(judge.graph, input_shape), _opset_of(judge)
    stored_arrays(judge.graph)  # can all be read, before onnx looks at them
    model = _prepared(judge, opset)
    graph = Reader(model, source, stored_arrays(model.graph), max(opset, OLDEST_OPSET)).read()
    try:
        network = lower(graph)
    except InvalidInput as error:  # numbers that are not finite
        raise UnreadableModel(f"the model is no network: {error}") from None
    confirm(network.network, [_original(judge, source)], points, sizes=_large_constants(model.graph))
    parameters = sum(int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type in (FLOAT, DOUBLE))
    return Imported(network, source.shape[1:] if source.batched else source.shape, parameters)


def _large_constants(graph: onnx.GraphProto, above: float = 1e25, most: int = 8) -> tuple[float, ...]:
    """Large numbers of a model, such as the limits of a Clip, the smallest first: samples should reach beyond them."""
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    found = {a.f for node in graph.node for a in node.attribute if a.HasField("f")}
    for tensor in tensors:
        if tensor.data_type in REAL and 0 < int(np.prod(tensor.dims)) <= 64:
            found.update(numpy_helper.to_array(tensor).ravel().astype(float).tolist())
    return tuple(sorted(abs(x) for x in found if above < abs(x) < 1e290)[:most])


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


def _fix_inputs(graph: onnx.GraphProto, fixed: Mapping[str, Any]) -> None:
    """Store the given values in the model, in the place of the inputs of that name."""
    stored = {tensor.name for tensor in graph.initializer}
    inputs = {entry.name: entry for entry in graph.input if entry.name not in stored}
    strange = [name for name in fixed if name not in inputs]
    if strange:
        raise InvalidInput(f"fixed names {few(strange)}; the model's inputs are {few(inputs)}")
    for name, value in fixed.items():
        entry = inputs[name]
        kind = onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        sizes = [d.dim_value or None for d in entry.type.tensor_type.shape.dim]
        array = np.asarray(value)
        if not hasattr(value, "dtype"):  # plain numbers have neither type nor shape of their own
            array = _filled(array, kind, sizes)
        if array.dtype.kind not in "fiub":
            raise InvalidInput(f"fixed[{name!r}] must be numbers of type {kind}, got {array.dtype}")
        exact = array.astype(kind)
        if not np.array_equal(exact.astype(float), array.astype(float)):
            raise InvalidInput(f"fixed[{name!r}] must be numbers of type {kind}, got others, of type {array.dtype}")
        if len(sizes) != array.ndim or any(s not in (None, n) for s, n in zip(sizes, array.shape, strict=True)):
            raise InvalidInput(f"fixed[{name!r}] must be of shape {sizes}, got {array.shape}")
        graph.initializer.append(numpy_helper.from_array(exact, name))
        graph.input.remove(entry)


def _filled(array: Array, kind: Any, sizes: list[int | None]) -> Array:
    """Plain numbers in the type of an input, and one after the other in its shape, with a batch of one."""
    shape = [size or 1 for size in sizes]
    array = array.astype(kind) if array.dtype.kind in "fiub" and np.dtype(kind).kind == "f" else array
    return array.reshape(shape) if array.ndim < 2 and array.size == math.prod(shape) else array


def _choose_output(graph: onnx.GraphProto, chosen: str | int | None) -> None:
    if chosen is None:
        return
    names = [entry.name for entry in graph.output]
    number = int(chosen) if isinstance(chosen, str) and chosen.isdigit() and chosen not in names else chosen
    if isinstance(number, int) and not isinstance(number, bool) and -len(names) <= number < len(names):
        chosen = names[number]
    if chosen not in names:
        raise InvalidInput(f"output must be one of {few(names)}, or its number, got {chosen!r}")
    kept = copy.deepcopy(graph.output[names.index(chosen)])
    del graph.output[:]
    graph.output.append(kept)


def _opset_of(model: onnx.ModelProto) -> int:
    versions = {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")} or {1}
    if len(versions) > 1:
        raise UnreadableModel(f"the model names several operator sets ({', '.join(map(str, sorted(versions)))})")
    if not 1 <= max(versions) <= onnx.defs.onnx_opset_version():
        raise UnreadableModel(
            f"the model uses operator set {max(versions)}, which this onnx does not know; install a newer one"
        )
    return int(max(versions))


def _prepared(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The same model, proper by onnx's own rules, with its functions written out, in an operator set that is read.

    Functions that are registered as activations stay. Inputs and outputs without a shape are let pass.
    """
    model = copy.deepcopy(model)
    for entry in (*model.graph.input, *model.graph.output):
        entry.type.tensor_type.shape.SetInParent()
    functions = [(f.domain, f.name) for f in model.functions]
    kept = [name for name in functions if of_function(*name) is not None]
    try:
        onnx.checker.check_model(model)
        if len(kept) < len(functions):
            _check_functions(model)
            model = inliner.inline_selected_functions(model, kept, exclude=True)
        return model if opset >= OLDEST_OPSET else version_converter.convert_version(model, OLDEST_OPSET)
    except LipcertError:
        raise
    except Exception as error:  # of classes of onnx's own, or of its C++ part
        reason = shown(" ".join(str(error).split()), 300)
        raise UnreadableModel(f"onnx finds that the model is not proper ONNX: {reason}") from None


def _check_functions(model: onnx.ModelProto) -> None:
    bodies = {(f.domain, f.name): [(n.domain, n.op_type) for n in f.node] for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def count(name: tuple[str, str]) -> int:
        """Operators in a function written out; too many if it calls itself."""
        if name in bodies and name not in sizes:
            sizes[name] = MOST_OPERATORS
            sizes[name] = sum(map(count, bodies[name]))
        return sizes.get(name, 1)

    if sum(count((node.domain, node.op_type)) for node in model.graph.node) >= MOST_OPERATORS:
        raise UnreadableModel(f"the model's functions, written out, are {MOST_OPERATORS} operators or more")


def _one_in_one_out(graph: onnx.GraphProto) -> None:
    given = {i.name for i in graph.initializer}
    inputs = [i.name for i in graph.input if i.name not in given]
    outputs = [o.name for o in graph.output]
    for names, what, advice in (
        (inputs, "inputs", "give all but one as fixed={name: values}, --fixed NAME=…"),
        (outputs, "outputs", "choose one with output=name, --output NAME"),
    ):
        if len(names) != 1:
            advice = f": {advice}" if names else ""
            raise UnreadableModel(f"the model has {len(names)} {what} ({', '.join(names)}); a network has one{advice}")


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
    stored = {tensor.name for tensor in graph.initializer}
    entry = next(i for i in graph.input if i.name not in stored)
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
        chosen = tuple(given)
        batched = sizes is None or len(sizes) == len(chosen) + 1
        rest = [] if sizes is None else sizes[1:] if batched else sizes
        fits = sizes is None or (len(rest) == len(chosen) and all(a in (None, b) for a, b in zip(rest, chosen)))
        if not fits:
            raise InvalidInput(f"input_shape {given} does not fit the model's input {name} of shape {sizes}")
        return ((1, *chosen) if batched else chosen), batched
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
