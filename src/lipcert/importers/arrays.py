"""Networks stored as bare arrays: NumPy's .npz, MATLAB's .mat (version 5 to 7.2), and .nnet of the ACAS family."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.files import networks
from lipcert.importers.builder import Builder, Unsupported
from lipcert.importers.lowering import lower
from lipcert.importers.mat import NewerFormat, variables
from lipcert.importers.untrusted import check_archive, few, room
from lipcert.model.activations import TABLE
from lipcert.model.arrays import Array
from lipcert.model.network import Network

_LAYOUT = "W1, b1, W2, b2, … (each W outputs × inputs, biases optional) and optionally a string 'activation'"
_CELLS = (
    "W1, b1, W2, b2, …, or cell arrays 'weights' or 'W' and, optionally, 'biases' or 'b', and the names of"
    " activations, or IW, LW and b of MATLAB's networks"
)
_NUMBERED = r"([Wb])([1-9][0-9]{0,8})"
_LONGEST = 200
"""Characters of an activation's name with its parameters."""
_ACTIVATION = ("activation", "act_fcns", "act", "transferFcn")
_CALLED = {"weights": ("weights", "W"), "biases": ("biases", "b"), "activation": _ACTIVATION}
"""What cell arrays are called, also by NNV and in the ARCH competition."""
_WANTED = ("IW", "LW", *(name for names in _CALLED.values() for name in names))
_MATLAB = {"poslin": "relu", "logsig": "sigmoid", "tansig": "tanh", "purelin": "identity", "satlins": "hardtanh"}


def read_npz(path: Path, activation: Any = None) -> Network:
    """The network stored as W1, b1, W2, b2, … in an .npz file, or by ``Network.save``."""
    arrays = stored(path)
    if "format" not in arrays:
        return _numbered(path, arrays, activation)
    if activation is not None:
        raise InvalidInput(f"activation has no meaning here: {path} says which activations it has")
    return networks.built(path, arrays)


def _numbered(path: Path, arrays: Mapping[str, Any], activation: Any) -> Network:
    names = [name for name in arrays if name != "activation"]
    if strange := [name for name in names if not re.fullmatch(_NUMBERED, name)]:
        raise UnreadableModel(f"{path} has arrays of unknown meaning: {few(strange, 40)}; expected {_LAYOUT}")
    weights, biases = ({int(name[1:]) for name in names if name[0] == kind} for kind in "Wb")
    count = len(weights)
    if missing := [f"W{i}" for i in range(1, count + 1) if i not in weights] or ([] if weights else ["W1"]):
        raise UnreadableModel(f"{path} has no {missing[0]}; it holds {few(arrays, 40)}; expected {_LAYOUT}")
    if spare := [f"b{i}" for i in sorted(biases - weights)]:
        raise UnreadableModel(f"{path} has {few(spare, 40)} but its last weight is W{count}")
    matrices, vectors = ({f"{kind}{i}": arrays.get(f"{kind}{i}") for i in range(1, count + 1)} for kind in "Wb")
    return _assemble(path, matrices, vectors, arrays.get("activation"), activation)


def read_mat(path: Path, activation: Any = None) -> Network:
    """The network stored as W1, b1, W2, …, as cells of weights and biases, or as IW, LW and b, in a .mat file."""
    try:
        data = path.read_bytes()
        arrays = variables(data, _WANTED)
        if others := not {"weights", "W", "IW"} & set(arrays):  # numbered, or in a struct
            arrays = {name: value for name, value in variables(data).items() if name[:2] != "__"}
    except NewerFormat:
        raise UnreadableModel(f"{path} is a MATLAB 7.3 file; save it again with save(…, '-v7')") from None
    except Exception as error:  # a damaged file makes the parser fail in any way it likes
        raise _damaged(path, "a MATLAB file", error) from None
    if others and any(re.fullmatch(_NUMBERED, name) for name in arrays):
        return _numbered(path, arrays, activation)
    structs = [value for value in arrays.values() if isinstance(value, dict)]
    arrays = structs[0] if others and len(structs) == 1 else arrays
    if "IW" in arrays:
        arrays = {**{k: v for k, v in arrays.items() if k not in ("IW", "LW")}, "weights": _of_matlab(path, arrays)}
    found = {what: [arrays[name] for name in names if name in arrays] for what, names in _CALLED.items()}
    if not found["weights"] or max(map(len, found.values())) > 1:
        raise UnreadableModel(f"{path} holds {few(arrays, 40)}; expected {_CELLS}, each once")
    weights = _cells(path, "weights", found["weights"][0])
    biases = _cells(path, "biases", found["biases"][0]) if found["biases"] else [None] * len(weights)
    if len(biases) != len(weights):
        raise UnreadableModel(f"{path} has {len(weights)} weights and {len(biases)} biases; each layer needs both")
    matrices = {f"weights{{{i}}}": value for i, value in enumerate(weights, 1)}
    vectors = {f"biases{{{i}}}": value for i, value in enumerate(biases, 1)}
    return _assemble(path, matrices, vectors, next(iter(found["activation"]), None), activation)


def _of_matlab(path: Path, arrays: Mapping[str, Any]) -> Array:
    """The weights of one layer after the other, IW{1}, LW{2,1}, LW{3,2}, …; any other connection is refused."""
    first, others = (np.atleast_2d(np.asarray(arrays.get(name), dtype=object)) for name in ("IW", "LW"))
    count = first.shape[0]
    table = {("IW", *place): v for place, v in np.ndenumerate(first)}
    table |= {("LW", *place): v for place, v in np.ndenumerate(others)} if count > 1 else {}
    chain = [("IW", 0, 0), *(("LW", i, i - 1) for i in range(1, count))]
    if {place for place, value in table.items() if np.size(value)} != set(chain):
        raise UnreadableModel(f"{path}: IW and LW must connect one input and each layer to the next, and nothing else")
    column = np.empty(count, dtype=object)
    for row, place in enumerate(chain):
        column[row] = table[place]
    return column


def read_nnet(path: Path, activation: Any = None) -> Network:
    """The ReLU network of a .nnet file, in its own units: (x - mean)/range before it, y·range + mean behind it.

    The limits of the inputs, to which its users clip, are not part of the function: give them as the region.
    """
    if activation not in (None, "relu"):
        raise InvalidInput(f"activation has no meaning here: {path} has ReLUs")
    try:
        if path.stat().st_size > room(0):
            raise ValueError("it is larger than a network may be")
        text = path.read_text("ascii")
        rows = [[float(v) for v in row.split(",") if v.strip()] for row in text.splitlines() if row[:2] != "//"]
        (count, inputs, outputs, _), sizes = ([int(v) for v in row] for row in rows[:2])
        means, ranges = rows[5], rows[6]
        if len(sizes) != count + 1 or (sizes[0], sizes[-1]) != (inputs, outputs):
            raise ValueError("its sizes do not fit each other")
        if not len(means) == len(ranges) == inputs + 1:
            raise ValueError(f"it has {len(means)} means and {len(ranges)} ranges for {inputs} inputs and the outputs")
        build, place = Builder((inputs,)), 7
        x = build.divide(build.scale(build.input, 1.0, np.negative(means[:-1])), np.array(ranges[:-1]))
        for number, (before, after) in enumerate(itertools.pairwise(sizes), 1):
            weight, bias = np.array(rows[place : place + after]), np.array(rows[place + after : place + 2 * after])
            if weight.shape != (after, before) or bias.shape != (after, 1):
                raise ValueError(f"the weight and bias of layer {number} are not of its size")
            x = build.affine(x, weight, bias.ravel(), (after,))
            x = build.activate(x, "relu") if number < count else x
            place += 2 * after
        network = lower(build.finish(build.scale(x, ranges[-1], means[-1]))).network
    except (OSError, ValueError, IndexError, OverflowError, LipcertError, Unsupported) as error:
        raise _damaged(path, "a .nnet file", error) from None
    return network


def stored(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name, or of an .npy file under the name ''. Pickled objects are refused."""
    try:
        with open(path, "rb") as file:
            if file.read(2) == b"PK":
                check_archive(path)
            file.seek(0)
            content = np.load(file, allow_pickle=False)
            arrays = {"": content} if isinstance(content, np.ndarray) else {n: content[n] for n in content.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its member {name[:40]!a} is no array")
        return arrays
    except Exception as error:  # a damaged file makes the parser fail in any way it likes
        if "Object arrays cannot be loaded" in str(error):
            raise UnreadableModel(
                f"{path} holds pickled Python objects, which could run code and are never loaded;"
                " save each matrix as a numeric array of its own"
            ) from None
        raise _damaged(path, "a NumPy file", error) from None


def _assemble(path: Path, weights: Mapping[str, Any], biases: Mapping[str, Any], names: Any, wanted: Any) -> Network:
    """The network with the activation that the file says, else the one that is wanted; a contradiction is an error."""
    said, hidden = _names(path, names), len(weights) - 1
    biases = {name: None if 0 in np.shape(value) else value for name, value in biases.items()}  # an empty cell
    for name, array in {**weights, **biases}.items():
        dtype = np.asarray(0.0 if array is None else array).dtype
        if dtype.kind not in "fiub":
            raise UnreadableModel(f"{path}: {name} must hold real numbers, got {dtype}")
    if said is None and wanted is None and hidden:
        raise InvalidInput(
            f"{path} does not say which activation its {hidden} hidden layer{'s' * (hidden > 1)} use; give"
            f" activation='relu' (on the command line: --activation relu) or another of {few(TABLE, 40)}"
        )
    if said and 1 < len(said) == hidden + 1 and said[-1] in ("identity", "linear"):  # the last layer is listed too
        said = said[:-1]
    spec: Any = "identity" if said is None else said if len(said) > 1 else said[0]
    make = partial(Network.from_weights, [*weights.values()], [*biases.values()])
    try:
        network = make(spec)
    except InvalidInput as error:
        hint = "" if "activation" in str(error) else "; each weight is (outputs, inputs): transpose it if it is not"
        raise UnreadableModel(f"{path}: {error}{hint}") from None
    asked = network if wanted is None else make(wanted)
    if said is not None and asked.digest != network.digest:
        raise InvalidInput(
            f"{path} says its activation is {few(said, 40)}, the argument says {wanted!r}; leave the argument out"
            " or correct the file"
        )
    return asked


def _names(path: Path, value: Any) -> list[str] | None:
    """The names in an array of strings, of bytes, or in a cell array of strings."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind == "O" and array.size:
        return [name for cell in array.ravel() for name in _names(path, cell) or []]
    if array.dtype.kind not in "US" or array.size == 0:
        raise UnreadableModel(f"{path}: activation must be a string or strings, got {array.dtype} of {array.shape}")
    if array.dtype.itemsize > 4 * _LONGEST:
        raise UnreadableModel(f"{path}: activation must be a name, got a text of more than {_LONGEST} characters")
    codes = array.astype(array.dtype.newbyteorder("<")).tobytes() if array.dtype.kind == "U" else b""
    if (np.frombuffer(codes, dtype="<u4") >= 128).any():  # numpy does not check that characters exist
        raise UnreadableModel(f"{path}: activation must be a name in plain letters")
    texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    return [_MATLAB.get(text.strip(), text.strip()) for text in texts]  # rows of a matrix of letters end in spaces


def _cells(path: Path, name: str, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray) and value.dtype == object and 0 < value.size == max(value.shape):
        return list(value.ravel())
    came = f"{type(value).__name__} of shape {np.shape(value)}" if np.size(value) else "nothing"
    raise UnreadableModel(f"{path}: '{name}' must be a cell array with one matrix a layer, got {came}")


def _damaged(path: Path, kind: str, error: Exception) -> UnreadableModel:
    if isinstance(error, PermissionError):
        return UnreadableModel(f"{path} may not be read: {error.strerror}")
    reason = f"{type(error).__name__}: {error}".strip().rstrip(".:").encode("ascii", "backslashreplace").decode()[:300]
    return UnreadableModel(f"{path} is not {kind}, or it is damaged or cut short ({reason}); write it again")
