"""What the texts of options mean: methods, norms, numbers, points of files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TypeVar

import numpy as np
import typer

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.arrays import stored
from lipcert.methods.joint import Joint
from lipcert.methods.method import Method
from lipcert.methods.split import Auto, Split
from lipcert.model.arrays import Array
from lipcert.model.regions import NORMS, Norm
from lipcert.questions.certify import OWN

Number = TypeVar("Number", int, float)


def method(name: str | Method) -> Method:
    """The method of that name with its default options."""
    if isinstance(name, Method):
        return name
    if name not in OWN:
        raise typer.BadParameter(f"unknown method {name!r}; known are {', '.join(OWN)}")
    return OWN[name]()


def limited(chosen: Method | None, seconds: float | None, default: Method | None = None) -> Method | None:
    """The method, or the default one, with that time limit if it can have one."""
    chosen = default if chosen is None else chosen
    if seconds is None or not isinstance(chosen, (Auto, Joint, Split, NoneType)):
        return chosen
    return replace(Auto() if chosen is None else chosen, seconds=seconds)


def activations(text: str | None) -> str | list[str] | None:
    """One name, or a list if commas outside brackets separate several."""
    names = re.findall(r"[^,(]+(?:\([^)]*\)?)?", text) if text else []
    return text if len(names) < 2 else names


def norm(option: str, name: str, scale: str | None = None) -> Norm:
    """The norm of that name and scale."""
    if name not in NORMS:
        raise InvalidInput(f"{option} must be one of {', '.join(NORMS)}, got {name!r}")
    named = "--output-scale" if option == "--output-norm" else "--input-scale"
    units = np.ones(1) if scale is None else listed(named, scale).ravel()
    return NORMS[name](units[0] if units.size == 1 else units)  # type: ignore[call-arg]


def _parts(option: str, text: str, kind: Callable[[str], Number], what: str) -> list[Number]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} must be {what}; got {text!r}") from None


def numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas."""
    return _parts(option, text, float, "numbers separated by commas, as in 0.5,0.1")


def indices(option: str, text: str | None) -> list[int] | None:
    """Integers separated by commas."""
    return None if text is None else _parts(option, text, int, "whole numbers separated by commas, as in 0,3")


def shape(option: str, text: str | None) -> tuple[int, ...] | None:
    """Sizes separated by commas or x, as in 3,32,32."""
    sizes = indices(option, None if text is None else text.replace("x", ","))
    return None if sizes is None else tuple(sizes)


def span(option: str, text: str | None) -> tuple[int, int] | None:
    """A pair P:I."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match is None:
        raise InvalidInput(f"{option} must be P:I, as in 2:5; got {text!r}")
    return int(match[1]), int(match[2])


def listed(option: str, text: str) -> Array:
    """Numbers separated by commas, or those of a file."""
    what = "numbers separated by commas, a .npy or .npz file, or zeros"
    return _from_file(option, text) if _is_file(text) else np.array(_parts(option, text, float, what))


def vector(option: str, text: str, size: int) -> Array:
    """The ``size`` numbers of a file, of a point of a file, of a list with commas, or zeros."""
    if text.strip().lower() == "zeros":
        return np.zeros(size)
    values = listed(option, text)
    if values.size != size:
        if values.ndim > 1 and values[0].size == size:
            raise InvalidInput(f"{option}: {text} holds {len(values)} points; say which, from 0, as in {text}:7")
        shape = f" (shape {values.shape})" if values.ndim > 1 else ""
        raise InvalidInput(f"{option} must have {size} numbers, as the network has inputs; got {values.size}{shape}")
    return values.reshape(size)


def corners(option: str, texts: tuple[str, str], size: int) -> tuple[Array, Array]:
    """Lower and upper corner: each as for ``vector``, or one number for all coordinates."""

    def corner(text: str) -> Array:
        single = "," not in text and not _is_file(text) and text.strip().lower() != "zeros"
        return np.full(size, listed(option, text)) if single else vector(option, text, size)

    low, high = map(corner, texts)
    if (low > high).all():
        raise InvalidInput(f"{option} {texts[0]} {texts[1]}: the limits are swapped; give the lower one first")
    return low, high


def _is_file(text: str) -> bool:
    return Path(re.sub(r":-?\d+$", "", text)).suffix.lower() in (".npy", ".npz")


def _from_file(option: str, text: str) -> Array:
    """The array of a file, or for FILE:N its entry N along the first axis."""
    path, _, number = text.rpartition(":")
    if not number.isdecimal():
        return _array(option, Path(text), None)
    array = _array(option, Path(path), "x")
    if array.ndim < 2 or int(number) >= len(array):
        held = f"{len(array)} points, from 0" if array.ndim > 1 else "one point only"
        raise InvalidInput(f"{option} {text}: there is no point {number}; the file holds {held}")
    return np.asarray(array[int(number)])


def _array(option: str, path: Path, name: str | None) -> Array:
    """The only array of a file; of several, the one of that name."""
    if not path.is_file():
        raise InvalidInput(f"{option}: there is no file {path}")
    try:
        arrays = stored(path)
    except UnreadableModel as error:
        raise InvalidInput(f"{option}: {error}") from None
    if len(arrays) != 1 and name not in arrays:
        hint = "; of a file with x and y, a point is FILE:7" if "x" in arrays else ""
        raise InvalidInput(f"{option}: {path} must hold one array, it holds {', '.join(arrays) or 'none'}{hint}")
    array = arrays[name] if name in arrays else next(iter(arrays.values()))
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"{option}: {path} must hold real numbers, got {array.dtype}")
    return array
