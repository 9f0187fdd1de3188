"""ONNX files: protocol buffers, read as data; batch dimension one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers import faithful
from lipcert.importers.faithful import Imported, Original, confirm
from lipcert.importers.lowering import lower
from lipcert.importers.room import LARGEST_INPUT
from lipcert.importers.wording import line
from lipcert.model.arrays import Array

try:
    import onnx
    from onnx.reference import ReferenceEvaluator
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading ONNX models needs onnx: pip install "lipcert[onnx]"') from None

from lipcert.importers.onnx_checks import check_names, inlined, opset_of
from lipcert.importers.onnx_given import choose_output, fix_inputs, widen_bfloat16
from lipcert.importers.onnx_reader import DOUBLE, FLOAT, REAL, Reader, Source


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
    widen_bfloat16(judge.graph)
    fix_inputs(judge.graph, fixed or {})
    choose_output(judge.graph, output)
    model = inlined(copy.deepcopy(judge))
    opset = opset_of(model)
    check_names(model.graph)
    _one_in_one_out(model.graph)
    if drop_softmax:
        if not _output_before_softmax(judge.graph):  # it is in a function, which is written out in the model
            judge = copy.deepcopy(model)
            _output_before_softmax(judge.graph)
        _drop_softmax(model.graph)
    source = _fix_shape(model, input_shape)
    graph = Reader(model, source, opset).read()
    try:
        network = lower(graph)
    except InvalidInput as error:  # numbers that are not finite
        raise UnreadableModel(f"the model is no network: {error}") from None
    confirm(network.network, _original(judge, source), points, sizes=_large_constants(model.graph))
    parameters = sum(int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type in (FLOAT, DOUBLE))
    return Imported(network, source.shape[1:] if source.batched else source.shape, parameters)


def _large_constants(graph: onnx.GraphProto, above: float = 1e25, most: int = 8) -> tuple[float, ...]:
    """Large numbers of a model, such as the limits of a Clip, the smallest first: samples should reach beyond them."""
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    found = {a.f for node in graph.node for a in node.attribute if a.HasField("f")}
    for tensor in tensors:
        if tensor.data_type in REAL and 0 < int(np.prod(tensor.dims)) <= 64:
            found.update(onnx.numpy_helper.to_array(tensor).ravel().astype(float).tolist())
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


def _one_in_one_out(graph: onnx.GraphProto) -> None:
    given = {i.name for i in graph.initializer}
    inputs = [i.name for i in graph.input if i.name not in given]
    outputs = [o.name for o in graph.output]
    for names, what in ((inputs, "inputs"), (outputs, "outputs")):
        if len(names) != 1:
            advice = (
                "give all but one as fixed={name: values}, --fixed NAME=…"
                if what == "inputs"
                else "choose one with output=name, --output NAME"
            )
            advice = f": {advice}" if names else ""
            raise UnreadableModel(f"the model has {len(names)} {what} ({', '.join(names)}); a network has one{advice}")


def _output_before_softmax(graph: onnx.GraphProto) -> bool:
    """Let the output be what the final softmax receives, and leave everything else; False if there is none."""
    if not graph.output:
        return False
    output = graph.output[0]
    last = next((node for node in graph.node if output.name in node.output), None)
    if last is None or last.op_type not in ("Softmax", "LogSoftmax") or not last.input:
        return False
    output.CopyFrom(onnx.helper.make_tensor_value_info(last.input[0], output.type.tensor_type.elem_type, None))
    return True


def _drop_softmax(graph: onnx.GraphProto) -> None:
    """Remove the final softmax; the output is what it receives."""
    last = next((node for node in graph.node if graph.output[0].name in node.output), None)
    if not _output_before_softmax(graph):
        kind = "none" if last is None else last.op_type
        raise InvalidInput(f"drop_softmax=True, but the last operation is {kind}, not a softmax")
    graph.node.remove(last)


def _fix_shape(model: onnx.ModelProto, given: Sequence[int] | None) -> Source:
    """Write the input's shape, with batch one, into the model."""
    weights = {i.name for i in model.graph.initializer}
    entry = next(i for i in model.graph.input if i.name not in weights)
    kind = entry.type.tensor_type
    names = {value: name.lower() for name, value in onnx.TensorProto.DataType.items()}
    if kind.elem_type not in REAL:
        came = names.get(kind.elem_type, "unknown").replace("undefined", "no tensor")
        raise UnreadableModel(f"the input {entry.name} has numbers of type {came}; a network takes real numbers")
    sizes = [d.dim_value if d.dim_value > 0 else None for d in kind.shape.dim] if kind.HasField("shape") else None
    shape, batched = _shape(entry.name, sizes, given)
    if math.prod(shape) > LARGEST_INPUT:
        raise UnreadableModel(f"the input {entry.name} has shape {shape}, more than {LARGEST_INPUT} numbers")
    del kind.shape.dim[:]
    for size in shape:
        kind.shape.dim.add().dim_value = size
    del model.graph.value_info[:]  # shapes inside are inferred again
    output = model.graph.output[0]
    output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, output.type.tensor_type.elem_type, None))
    first = (sizes or [None])[0]
    return Source(entry.name, shape, kind.elem_type, batched, first or 1 if batched else 1)


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
    run, library = _runtime(model), "onnxruntime"
    if run is not None and not _runs(run, source):  # it refuses some operators only when it meets them
        run = None
    if run is None:
        run, library = _reference(model), "onnx.reference"

    def evaluate(x: Array) -> Array:
        try:
            with np.errstate(all="ignore"):  # large inputs may overflow
                found = np.asarray(run(source.feed(x)), dtype=float)
        except Exception as error:  # the libraries' own classes
            raise UnreadableModel(f"{library} cannot run the model ({type(error).__name__}: {line(error)})") from error
        return found if source.batch == 1 else found.reshape(source.batch, -1)[0]

    precisions: dict[int, faithful.Precision] = {DOUBLE: faithful.DOUBLE, onnx.TensorProto.FLOAT16: faithful.HALF}
    return Original(evaluate, precisions.get(source.kind, faithful.SINGLE), library)


def _runs(run: Callable[[Mapping[str, Array]], Array], source: Source) -> bool:
    try:
        run(source.feed(np.zeros(math.prod(source.shape))))
    except Exception:  # its own classes
        return False
    return True


def _reference(model: onnx.ModelProto) -> Callable[[Mapping[str, Array]], Array]:
    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:  # of any class
        raise UnreadableModel(f"onnx itself cannot run the model ({type(error).__name__})") from error
    return lambda feeds: next(iter(evaluator.run(None, dict(feeds))))


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
