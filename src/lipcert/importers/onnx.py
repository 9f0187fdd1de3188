"""ONNX files: protocol buffers, read as data; batch dimension one."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers import faithful
from lipcert.importers.faithful import Imported, Original, confirm
from lipcert.importers.lowering.lower import lower
from lipcert.importers.registry import of_function
from lipcert.importers.untrusted import LARGEST_INPUT, few, line
from lipcert.model.arrays import Array

try:
    import onnx
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading ONNX models needs onnx: pip install "lipcert[onnx]"') from None

from lipcert.importers.onnx_reader import DOUBLE, FLOAT, REAL, Reader, Source

OLDEST_OPSET = 7
"""Before it, broadcasting followed other rules."""


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
    _check_functions(judge)
    opset = _opset_of(judge)
    _check_names(judge.graph)
    _one_in_one_out(judge.graph)
    model = copy.deepcopy(judge)
    if drop_softmax:
        _drop_softmax(model.graph)
        _output_before_softmax(judge.graph)
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
    """Leave one output of the model."""
    if chosen is None:
        return
    names = [entry.name for entry in graph.output]
    if isinstance(chosen, int) and not isinstance(chosen, bool) and -len(names) <= chosen < len(names):
        chosen = names[chosen]
    if isinstance(chosen, str) and chosen not in names and chosen.isdigit() and int(chosen) < len(names):
        chosen = names[int(chosen)]
    if chosen not in names:
        raise InvalidInput(f"output must be one of {few(names)}, or its number, got {chosen!r}")
    kept = graph.output[names.index(chosen)]
    entry = onnx.ValueInfoProto()
    entry.CopyFrom(kept)
    del graph.output[:]
    graph.output.append(entry)


def _check_functions(model: onnx.ModelProto) -> None:
    """Refuse functions of the model's own, but for those that are registered as activations."""
    names = [f"{f.domain}:{f.name}" for f in model.functions if of_function(f.domain, f.name) is None]
    if names:
        raise UnreadableModel(
            f"the model defines functions of its own ({few(names)}); write them out and load the result:"
            " onnx.inliner.inline_local_functions(onnx.load(path))"
        )


def _opset_of(model: onnx.ModelProto) -> int:
    """The operator set that the model's operators mean."""
    if not 1 <= model.ir_version <= onnx.IR_VERSION:
        raise UnreadableModel(
            f"the model is of version {model.ir_version} of the ONNX format; this onnx knows 1 to {onnx.IR_VERSION}"
        )
    versions = {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}
    if len(versions) > 1:
        raise UnreadableModel(f"the model names several operator sets ({', '.join(map(str, sorted(versions)))})")
    version = next(iter(versions), 1)
    if version < OLDEST_OPSET:
        raise UnreadableModel(
            f"the model uses operator set {version}, the oldest that is read is {OLDEST_OPSET};"
            " convert it with onnx.version_converter"
        )
    if version > onnx.defs.onnx_opset_version():
        raise UnreadableModel(
            f"the model uses operator set {version}, which this onnx does not know; install a newer one"
        )
    return int(version)


def _check_names(graph: onnx.GraphProto) -> None:
    """Raise unless each name is given once, and before it is used."""
    stored = [t.name for t in graph.initializer]
    entries = [i.name for i in graph.input if i.name not in set(stored)]
    made = [name for node in graph.node for name in node.output if name]
    twice = [name for name, count in Counter([*stored, *entries, *made]).items() if count > 1]
    if twice:
        raise UnreadableModel(f"the model gives several values the name {few(twice)}; names must differ")
    known, all_names, wrong = {*stored, *entries}, {*stored, *entries, *made}, []
    for node in graph.node:
        called = node.name or next((name for name in node.output if name), "without a name")
        for name in node.input:
            if name and name not in known:
                why = "a later operator gives it" if name in all_names else "nothing in the model gives it"
                wrong.append(f"{called} ({node.op_type}) uses {name}: {why}")
        known.update(name for name in node.output if name)
    wrong += [f"the output is {o.name}: nothing in the model gives it" for o in graph.output if o.name not in known]
    if wrong:
        raise UnreadableModel(
            f"the model uses names before they are given: {few(wrong, between='; ')}. Operators must stand in the"
            " order of their use; onnx.checker.check_model finds such faults"
        )


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


def _output_before_softmax(graph: onnx.GraphProto) -> bool:
    """Let the output be what the final softmax receives, and leave everything else; False if there is none."""
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
