"""PyTorch's state dicts (.pt, .pth): a plain stack of linear layers, where the file says enough to be sure of it.

A state dict holds numbers under names, nothing else. The activation must be given. The order of the layers must follow
from the names or from the sizes: the order of the entries is that in which layers were made, not that in which they are
used. A first weight without a bias is refused where it could be the table of an Embedding. Of a training checkpoint the
state dict in it is read.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers.arrays import parsed
from lipcert.importers.untrusted import check_archive, few, line, room
from lipcert.model.network import Network

try:
    import torch
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading PyTorch models needs PyTorch: pip install "lipcert[torch]"') from None

_ADVICE = "build the module, load the state dict into it and pass the module: lipcert.load(module.eval())"


def read_state(path: Path, activation: Any = None) -> Network:
    """The network of a saved state dict of linear layers, one after the other; nothing in the file is executed."""
    state = _state(path)
    layers = _layers(path, state)
    if activation is None:
        raise UnreadableModel(
            f"{path} does not say which activation stands between the layers; give activation='relu',"
            " or with parameters 'leaky_relu(0.2)' (on the command line: --activation relu)"
        )
    spec = parsed(activation)
    try:
        return Network.from_weights([w for w, _ in layers.values()], [b for _, b in layers.values()], spec)
    except InvalidInput as error:
        raise UnreadableModel(f"{path}: {error}; {_ADVICE}") from None


def _state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, each of real numbers that are in the file."""
    try:
        with open(path, "rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        if not zipped:
            raise ValueError("it is no zip archive, as PyTorch writes since version 1.6; save it again")
        check_archive(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the parser fail in any way it likes
        reason = line(error) if isinstance(error, ValueError) else type(error).__name__
        raise UnreadableModel(
            f"{path} is not a state dict that can be read without executing code from the file"
            f" ({reason}); load the module yourself and pass it: lipcert.load(module)"
        ) from error
    state = _of_checkpoint(path, state)
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise UnreadableModel(f"{path} holds a {type(state).__name__} that is not a state dict; {_ADVICE}")
    if strange := [key for key in state if not isinstance(key, str)]:
        raise UnreadableModel(f"{path} has entries that are not called by a name ({few(strange)}); {_ADVICE}")
    if odd := [f"{key} is {why}" for key, value in state.items() if (why := _odd(value))]:
        raise UnreadableModel(f"{path} has entries that are not plain real numbers ({few(odd)}); {_ADVICE}")
    if sum(8 * value.numel() for value in state.values()) > room(path.stat().st_size):
        raise UnreadableModel(f"{path} has tensors that are far larger than the file; {_ADVICE}")
    return state


def _of_checkpoint(path: Path, content: Any) -> Any:
    """The state dict in a training checkpoint, such as {"epoch": …, "model_state_dict": …, "optimizer": …}."""
    if not isinstance(content, dict) or any(isinstance(value, torch.Tensor) for value in content.values()):
        return content
    found = {
        key: held
        for key, held in content.items()
        if isinstance(held, dict)
        and all(isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in held.items())
        and any(name.rpartition(".")[2] == "weight" for name in held)
    }
    if len(found) > 1:
        raise UnreadableModel(f"{path} holds several state dicts ({few(found)}); save the one that is meant by itself")
    return next(iter(found.values()), content)


def _odd(value: torch.Tensor) -> str:
    """What a tensor is that is no array of real numbers; nothing if it is one."""
    if value.layout is not torch.strided:
        return "sparse"
    if value.is_quantized or value.is_complex():
        return "quantized" if value.is_quantized else "complex"
    if value.device.type != "cpu":
        return f"on the device {value.device.type}"
    whole = not value.is_floating_point() and value.ndim
    return f"of type {str(value.dtype).removeprefix('torch.')}" if whole else ""


def _layers(path: Path, state: Mapping[str, torch.Tensor]) -> dict[str, tuple[Any, Any]]:
    """Name of each layer → its weight and bias, in the order of their use."""
    weights = {key[:-6]: value for key, value in state.items() if _last(key) == "weight" and value.ndim == 2}
    biases = {key[:-4]: value for key, value in state.items() if _last(key) == "bias" and value.ndim == 1}
    known = {*(f"{stem}weight" for stem in weights), *(f"{stem}bias" for stem in biases if f"{stem}weight" in state)}
    strange = [f"{key} of shape {tuple(value.shape)}" for key, value in state.items() if key not in known]
    if strange or not weights:
        came = few(strange) if strange else "no weights"
        raise UnreadableModel(f"{path} is not a plain stack of linear layers ({came}); {_ADVICE}")
    shapes = [tuple(weight.shape) for weight in weights.values()]
    if not _ordered(list(weights), shapes):
        raise UnreadableModel(
            f"{path} does not say in which order its layers are used: {few([w.strip('.') for w in weights])} are not"
            f" numbered in one series; {_ADVICE}"
        )
    # the table of an Embedding has rows that the second weight takes, one or more
    no_table = len(shapes) > 1 and shapes[1][1] == shapes[0][0] and shapes[1][1] % shapes[0][1] != 0
    first = next(iter(weights))
    if first not in biases and not no_table:
        raise UnreadableModel(
            f"{path} begins with {first}weight without a bias, which may be that of a linear layer or the table"
            f" of an Embedding; {_ADVICE}"
        )
    return {stem: (_array(weight), _array(biases.get(stem))) for stem, weight in weights.items()}


def _last(key: str) -> str:
    """The last part of a name: the rest, with its dot, names the layer, so that .weight is not weight."""
    return key.rpartition(".")[2]


def _array(value: torch.Tensor | None) -> Any:
    return None if value is None else value.detach().resolve_neg().to(torch.float64).numpy()


def _ordered(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether only the order at hand is possible: the names count upwards, or no two sizes are equal."""
    parts = [re.split("([0-9]+)", name) for name in names]
    short = all(len(digits) < 10 for part in parts for digits in part[1::2])
    if short and all(part[::2] == parts[0][::2] for part in parts):
        numbers = [[int(digits) for digits in part[1::2]] for part in parts]
        if all(one < two for one, two in itertools.pairwise(numbers)):
            return True
    sizes = [shapes[0][1], *(shape[0] for shape in shapes)]
    return len(set(sizes)) == len(sizes)
