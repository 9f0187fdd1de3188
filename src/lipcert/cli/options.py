"""Options that several verbs share, and what their text means."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer

from lipcert.cli.methods import METHODS, method
from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers import load
from lipcert.importers.arrays import stored
from lipcert.model.arrays import Array
from lipcert.model.files import require_writable
from lipcert.model.network import Network
from lipcert.model.norms import L2, Norm
from lipcert.model.norms import NORMS as NORM_NAMES
from lipcert.model.regions import Ball, Box, Everywhere, Region
from lipcert.runtime.clock import Clock, timed
from lipcert.search.method import Method
from lipcert.show import plots

VECTOR = "FILE|NUMBERS"
REGION = "Region (default: all inputs, the global bound)"
NEEDED = "Region (needed: a ball or a box)"
PART = "Part of the network (default: all of it)"
NORMS = "Norms and units (default: ℓ2, as the numbers are)"

ModelArgument: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="A .onnx, .npz, .mat or .pt file.")]


def _center(panel: str) -> Any:
    return typer.Option(
        metavar=f"{VECTOR}|zeros",
        help="Centre of the ball: a .npy, .npz or .csv file, numbers separated by commas, or 'zeros'. Of a file with"
        " many points, test.npz:7 is the one at position 7, from 0.",
        rich_help_panel=panel,
    )


def _radius(panel: str) -> Any:
    return typer.Option(
        *("--radius", "--eps"),
        help="Radius of the ball, ℓ2 or in the norm of --norm.",
        metavar="NUMBER",
        rich_help_panel=panel,
    )


def _box(panel: str) -> Any:
    return typer.Option(
        metavar="LOWER UPPER",
        help="A box instead of a ball; each corner as for --center, or one number for all inputs.",
        rich_help_panel=panel,
    )


def _clip(panel: str) -> Any:
    return typer.Option(
        metavar="LOWER UPPER",
        help="Only the part of the ball between these, as in --clip 0 1 for images.",
        rich_help_panel=panel,
    )


def _point(panel: str) -> Any:
    return typer.Option(
        "--point",
        metavar="N",
        help="Which point of the file --center, from 0; as --center FILE:N.",
        rich_help_panel=panel,
    )


CenterOption: TypeAlias = Annotated[str | None, _center(REGION)]
RadiusOption: TypeAlias = Annotated[float | None, _radius(REGION)]
BoxOption: TypeAlias = Annotated[tuple[str, str] | None, _box(REGION)]
ClipOption: TypeAlias = Annotated[tuple[str, str] | None, _clip(REGION)]
PointOption: TypeAlias = Annotated[int | None, _point(REGION)]
NeededCenterOption: TypeAlias = Annotated[str | None, _center(NEEDED)]
NeededRadiusOption: TypeAlias = Annotated[float | None, _radius(NEEDED)]
NeededBoxOption: TypeAlias = Annotated[tuple[str, str] | None, _box(NEEDED)]
NeededClipOption: TypeAlias = Annotated[tuple[str, str] | None, _clip(NEEDED)]
NeededPointOption: TypeAlias = Annotated[int | None, _point(NEEDED)]
NormOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--norm", metavar="l1|l2|linf", help="Norm of the ball, in the units of --input-scale.", rich_help_panel=NORMS
    ),
]
InputNormOption: TypeAlias = Annotated[
    str,
    typer.Option(metavar="l1|l2|linf", help="Norm of changes of the input.", rich_help_panel=NORMS),
]
OutputNormOption: TypeAlias = Annotated[
    str,
    typer.Option(metavar="l1|l2|linf", help="Norm of changes of the output.", rich_help_panel=NORMS),
]
InputScaleOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS|FILE",
        help="What one unit of each input is, as in 0.1,100: for --input-norm, and for the ball.",
        rich_help_panel=NORMS,
    ),
]
OutputScaleOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NUMBERS|FILE", help="What one unit of each output is.", rich_help_panel=NORMS),
]
LowerOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--lower-bound/--no-lower-bound", help="Search for a lower bound too, which tells how tight the result is."
    ),
]
MeanOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS|FILE",
        help="Put (x - mean)/std in front of the model: one number, one per channel, or one per input.",
    ),
]
StdOption: TypeAlias = Annotated[str | None, typer.Option(metavar="NUMBERS|FILE", help="See --mean.")]


def _method_option(default: str) -> Any:
    """The option --method of a verb that takes this method by default; the backslash keeps it from being markup."""
    return typer.Option(
        parser=method,
        metavar="|".join(METHODS),
        help=f"How tight and how slow; see docs/how-to-choose.md. \\[default: {default}]",
        show_default=False,
    )


MethodOption: TypeAlias = Annotated[Method | None, _method_option("auto")]
SweepMethodOption: TypeAlias = Annotated[Method | None, _method_option("joint")]
SecondsOption: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="How long all of it may take, up to the first bound."),
]
ActivationOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Where the file does not say: a name such as relu or 'leaky_relu(0.2)', or one per layer with commas.",
    ),
]
InputShapeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N,N,…", help="Shape of one input, as in 3,32,32, where the model leaves it open."),
]
DropSoftmaxOption: TypeAlias = Annotated[
    bool, typer.Option("--drop-softmax", help="Take the logits before a final softmax as the output.")
]
InputsOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="I,J,…", help="Input coordinates, from 0; the others fixed.", rich_help_panel=PART)
]
OutputsOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="I,J,…", help="Output coordinates, from 0.", rich_help_panel=PART)
]
LayersOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="P:I",
        help="From what layer P puts out (0: the input) to what layer I computes before its activation.",
        rich_help_panel=PART,
    ),
]
CertificateOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="Save the proof there; lipcert verify checks it."),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def activations(text: str | None) -> str | list[str] | None:
    """One name, or a list where commas (outside brackets) separate several."""
    names = re.findall(r"[^,(]+(?:\([^)]*\)?)?", text) if text else []
    return text if len(names) < 2 else names


def network(
    model: str,
    activation: str | None,
    input_shape: str | None,
    drop_softmax: bool,
    mean: str | None = None,
    std: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    output: str | None = None,
) -> Network:
    """The network that a verb is about."""
    size = shape("--input-shape", input_shape)
    middle, width = listed("--mean", mean), listed("--std", std)
    ends: dict[str, Any] = {"input_shape": size, "fixed": fixed, "output": output}
    return load(model, activations(activation), drop_softmax=drop_softmax, mean=middle, std=width, **ends)


def model_name(model: str, mean: str | None, std: str | None) -> str:
    """What a theorem calls the model: its file, and the normalisation in front of it, if there is one."""
    file = os.path.basename(model)
    if mean is None and std is None:
        return file
    middle, width = (f"({text})" if "," in text else text for text in (mean or "0", std or "1"))
    return f"{file} behind (x - {middle})/{width}"


def norm(option: str, name: str, scale: str | None = None) -> Norm:
    """The norm that a name and a scale mean."""
    if name not in NORM_NAMES:
        raise InvalidInput(f"{option} must be one of {', '.join(NORM_NAMES)}, got {name!r}")
    units = listed(option.replace("-norm", "-scale"), scale)
    single = units is None or units.size == 1
    return NORM_NAMES[name](1.0 if units is None else units.ravel()[0] if single else units.ravel())  # type: ignore[call-arg]


def listed(option: str, text: str | None) -> Array | None:
    """Numbers separated by commas, or those of a file."""
    if text is None:
        return None
    return _from_file(option, text) if is_file(text) else _numbers(option, text)


def region_of(
    network: Network,
    center: str | None,
    radius: float | None,
    box: tuple[str, str] | None,
    clip: tuple[str, str] | None,
    point: int | None = None,
    norm_of_ball: Norm | None = None,
) -> Region:
    """The region that the options describe; everywhere without any."""
    measured = norm_of_ball is not None and norm_of_ball.name != L2.name
    if measured and (box is not None or (center is None and radius is None)):
        raise InvalidInput("--norm is that of a ball: give --center and --radius too, or leave it out")
    if point is not None:
        if center is None or not is_file(center) or _position(center) is not None:
            raise InvalidInput(f"--point {point} says which point of the file --center; give --center FILE.npz")
        center = f"{center}:{point}"
    if box is not None:
        if center is not None or radius is not None or clip is not None:
            raise InvalidInput("--box describes the whole region; leave out --center, --radius and --clip")
        return Box(*_corners("--box", box, network.inputs))
    if center is None and radius is None:
        if clip is not None:
            raise InvalidInput("--clip needs a ball to clip: give --center and --radius; for a box alone use --box")
        return Everywhere()
    if center is None:
        raise InvalidInput("--radius needs --center: a file, numbers separated by commas, or zeros")
    if radius is None:
        raise InvalidInput("--center needs --radius, as in --radius 0.1; without both the bound is global")
    middle = vector("--center", center, network.inputs)
    return Ball(middle, radius, None if clip is None else _corners("--clip", clip, network.inputs), norm_of_ball)


def vector(option: str, text: str, size: int) -> Array:
    """The ``size`` numbers that a text means: a file, a point of a file, numbers separated by commas, or zeros."""
    if text.strip().lower() == "zeros":
        return np.zeros(size)
    values = _from_file(option, text) if is_file(text) else _numbers(option, text)
    if values.size != size:
        if values.ndim > 1 and values[0].size == size:
            raise InvalidInput(
                f"{option}: {text} holds {len(values)} points; say which, from 0, as in {text}:7 or --point 7"
            )
        shape = f" (shape {values.shape})" if values.ndim > 1 else ""
        raise InvalidInput(f"{option} must have {size} numbers, as the network has inputs; got {values.size}{shape}")
    return values.reshape(size)


def indices(option: str, text: str | None) -> list[int] | None:
    """Integers separated by commas."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} must be whole numbers separated by commas, as in 0,3; got {text!r}") from None


def numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} must be numbers separated by commas, as in 0.5,0.1; got {text!r}") from None


def limit(seconds: float | None) -> AbstractContextManager[Clock]:
    """The clock of a verb: within the block, everything together is due after so many seconds."""
    if seconds is not None and not seconds > 0.0:
        raise InvalidInput(f"--seconds must be above 0, got {seconds}")
    return timed(seconds)


def figure(option: str, path: Path | None) -> None:
    """See, before the work, that a figure can be drawn and written there, if one is asked for."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".pdf", ".svg") or not path.parent.is_dir():
        raise InvalidInput(f"{option} must name a .png, .pdf or .svg file in a folder that exists, got {path}")
    output(option, path)
    plots.axes()  # what is missing for a plot is said now


def output(option: str, path: Path | None, *read: str | Path) -> None:
    """See, before the work, that a file can be written there, if one is asked for, and is none of those to read."""
    if path is None:
        return
    for other in read:
        if path.exists() and os.path.exists(other) and path.samefile(other):
            raise InvalidInput(f"{option} {path} would overwrite {other}; give another file")
    require_writable(path)


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


def _corners(option: str, texts: tuple[str, str], size: int) -> tuple[Array, Array]:
    low, high = (_spread(option, text, size) for text in texts)
    if (low > high).all():
        raise InvalidInput(f"{option} {texts[0]} {texts[1]}: the limits are swapped; give the lower one first")
    return low, high


def _spread(option: str, text: str, size: int) -> Array:
    """As ``vector``, but one number alone stands for all."""
    if "," in text or is_file(text) or text.strip().lower() == "zeros":
        return vector(option, text, size)
    return np.full(size, _numbers(option, text)[0])


def is_file(text: str) -> bool:
    """Whether a text names a file of numbers."""
    return Path(re.sub(r":-?\d+$", "", text)).suffix.lower() in (".npy", ".npz", ".csv")


def _position(text: str) -> int | None:
    """The N of FILE:N."""
    match = re.search(r":(\d+)$", text)
    return None if match is None else int(match[1])


def _numbers(option: str, text: str) -> Array:
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise InvalidInput(
            f"{option} must be numbers separated by commas, a .npy, .npz or .csv file, or zeros; got {text!r}"
        ) from None


def _from_file(option: str, text: str) -> Array:
    """The array of a file, or the entry of it, along the first axis, that FILE:N names."""
    position = _position(text)
    if position is None:
        return _array(option, Path(text), None)
    array = _array(option, Path(text.rpartition(":")[0]), "x")
    if array.ndim < 2 or position >= len(array):
        held = f"{len(array)} points, from 0" if array.ndim > 1 else "one point only"
        raise InvalidInput(f"{option} {text}: there is no point {position}; the file holds {held}")
    return np.asarray(array[position])


def _array(option: str, path: Path, name: str | None) -> Array:
    """The one array of a file; of several, the one of that name."""
    if not path.is_file():
        raise InvalidInput(f"{option}: there is no file {path}")
    if path.suffix.lower() == ".csv":
        return _from_csv(option, path)
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


def _from_csv(option: str, path: Path) -> Array:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns of an empty file
            return np.loadtxt(path, delimiter=",", ndmin=1)
    except (ValueError, UserWarning) as error:
        raise InvalidInput(
            f"{option}: {path} must hold numbers separated by commas and nothing else; {error}"
        ) from None
