"""PyTorch's exported programs in files (.pt2), stripped of all that could run code before PyTorch loads them.

Loading such a file would unpickle objects, evaluate expressions for sizes that vary, import classes for unusual
containers, and look up any function by name. Here a new archive is made in memory, of numbers and of a graph whose
operations are all known; whatever else a program needs is refused.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lipcert.errors import LipcertError, UnreadableModel
from lipcert.importers.lowering import Imported
from lipcert.importers.untrusted import check_archive, few, line

try:
    import torch
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading PyTorch models needs PyTorch: pip install "lipcert[torch]"') from None

from lipcert.importers.torch import APART, read_module, silent
from lipcert.importers.torch_ops import KNOWN, name_of

_NUMBERS: Final = r"data/(weights/weight|constants/tensor)_\d+|archive_format|archive_version|byteorder|\.data/\w+"
_CONFIGS: Final = r"data/(weights|constants)/model_(weights|constants)_config\.json"
_CONTAINERS: Final = (None, "builtins.tuple", "builtins.list", "builtins.dict")
_MADE: Final = ("full", "scalar_tensor", "remainder", "logical_and", "logical_not", "_assert_tensor_metadata")
_TAKEN_APART: Final = (*torch.export.default_decompositions(), *APART)
_KNOWN: Final = {*KNOWN, *_MADE, *(name for name in map(name_of, _TAKEN_APART) if "_cufft_" not in name)}
"""Operations that only compute: others, such as reading a file, are never run."""


def read_program(path: Path, **options: Any) -> Imported:
    """The network of a saved program; nothing in the file is executed but known operations on numbers."""
    try:
        check_archive(path)
        stripped = _stripped(path)
        with silent():
            program = torch.export.load(stripped)
    except LipcertError:
        raise
    except Exception as error:  # a damaged file makes the parser fail in any way it likes
        raise UnreadableModel(
            f"{path} is no exported program that can be read without executing code from the file ({line(error)}); load"
            " it yourself, if you trust it, and pass the program: lipcert.load(torch.export.load(path))"
        ) from error
    return read_module(program, **options)


def _stripped(path: Path) -> io.BytesIO:
    """A new archive with the numbers and the graph of a file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(stream, "w") as new:
        for full in old.namelist():
            name = full.partition("/")[2]
            content = old.read(full)
            if name == "models/model.json":
                content = json.dumps(_graph(json.loads(content))).encode()
            elif re.fullmatch(_CONFIGS, name):
                if any(entry.get("use_pickle") for entry in _entries(json.loads(content))):
                    raise ValueError("it holds pickled objects")
            elif name == "data/sample_inputs/model.pt":
                content = b""
            elif not re.fullmatch(_NUMBERS, name):
                raise ValueError(f"it has an unknown member {name[:60]!a}")
            new.writestr(f"model/{name}", content)
    stream.seek(0)
    return stream


def _graph(model: dict[str, Any]) -> dict[str, Any]:
    """The description of a program, which names known operations only and has no code."""
    unknown = []
    for entry in _entries(model):
        if "expr_str" in entry:
            raise ValueError("its sizes vary; export it again without dynamic_shapes")
        for spec in (json.loads(entry[key]) for key in ("in_spec", "out_spec") if key in entry):
            if any(part.get("type") not in _CONTAINERS for part in _entries(spec)):
                raise ValueError("it takes or returns more than tuples, lists and dictionaries of tensors")
        if "target" in entry:
            found = re.fullmatch(r"torch\.ops\.aten\.(\w+?)_?\.\w+", str(entry["target"]))
            if entry["target"] != "_operator.getitem" and (found is None or found[1] not in _KNOWN):
                unknown.append(entry["target"])
            kept = ("stack_trace", "nn_module_stack")
            entry["metadata"] = {key: str(value) for key, value in entry["metadata"].items() if key in kept}
    if unknown:
        raise ValueError(f"it has unknown operations: {few(dict.fromkeys(unknown))}")
    if model.get("range_constraints") or model["graph_module"].get("treespec_namedtuple_fields"):
        raise ValueError("its sizes vary, or it returns named tuples")
    return {**model, "guards_code": []}


def _entries(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        yield content
    for part in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _entries(part)
