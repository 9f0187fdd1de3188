"""Options that verbs share, and groups of them.

A verb takes a group as one argument, as in ``where: RegionOptions``; :func:`expanded` turns it into the options that
typer shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from lipcert.cli import parsing
from lipcert.errors import InvalidInput
from lipcert.files.whole import require_writable
from lipcert.importers import load
from lipcert.importers.arrays import stored
from lipcert.methods.method import Method
from lipcert.model.network import Network
from lipcert.model.regions import L2, Ball, Box, Everywhere, Norm, Region
from lipcert.questions.certify import OWN
from lipcert.questions.loops.compose import closed_loop, feedback
from lipcert.show import plots

Text: TypeAlias = str | None


def option(metavar: str | None, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option with its value's name and a help text; names follow from the argument if none are given."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


PART = "Part of the network (default: all of it)"
_model = partial(option, panel="How the model is read")
_region = partial(option, panel="Region: a ball or a box")
_norms = partial(option, panel="Norms and units (default: ℓ2, as the numbers are)")
_part = partial(option, "I,J,…", panel=PART)
_NORM, _UNITS, _CORNERS = "l1|l2|linf", "NUMBERS|FILE", "LOWER UPPER"

ModelArgument: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="A .onnx, .npz, .mat or .nnet file.")]
NormOption: TypeAlias = Annotated[str, _norms(_NORM, "Norm of the ball, in the units of --input-scale.", "--norm")]
InputScaleOption: TypeAlias = Annotated[
    Text, _norms(_UNITS, "One unit of each input, as in 0.1,100: for --input-norm, and for the ball.")
]
InputsOption: TypeAlias = Annotated[Text, _part("Input coordinates, from 0; the others fixed.")]
OutputsOption: TypeAlias = Annotated[Text, _part("Output coordinates, from 0.")]
SecondsOption: TypeAlias = Annotated[float | None, option("NUMBER", "Time limit; the first bound may take longer.")]
LowerOption: TypeAlias = Annotated[
    bool,
    option(None, "Also search a lower bound, which shows how tight the result is.", "--lower-bound/--no-lower-bound"),
]
CertificateOption: TypeAlias = Annotated[
    Path | None, option("FILE", "Save the proof; lipcert verify checks it.", "--certificate")
]
JsonOption: TypeAlias = Annotated[bool, option(None, "One JSON object on standard output.", "--json")]

ControllerOption: TypeAlias = Annotated[
    str | None,
    option("MODEL", "The controller; then the step is a plant from states and controls, or A and B in a .npz file."),
]


def _method(default: str) -> Any:
    text = f"How tight and how slow; see docs/how-to-choose.md. \\[default: {default}]"  # a bare [ would be markup
    return option("|".join(OWN), text, parser=parsing.method, show_default=False)


MethodOption: TypeAlias = Annotated[Method | None, _method("auto")]
SweepMethodOption: TypeAlias = Annotated[Method | None, _method("joint")]


@dataclass(frozen=True)
class ReadingOptions:
    """How a model file becomes a network."""

    activation: Annotated[
        Text, _model("NAME", "If the file does not say: relu, 'leaky_relu(0.2)', or one per layer with commas.")
    ] = None
    input_shape: Annotated[Text, _model("N,N,…", "Shape of one input, as in 3,32,32, if the model leaves it open.")] = (
        None
    )
    drop_softmax: Annotated[
        bool, _model(None, "Take the logits before a final softmax as the output.", "--drop-softmax")
    ] = False
    mean: Annotated[
        Text, _model(_UNITS, "Put (x - mean)/std in front of the model: one number, one per channel, or one per input.")
    ] = None
    std: Annotated[Text, _model(_UNITS, "See --mean.")] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of :func:`load`, without mean and std."""
        return {
            "activation": parsing.activations(self.activation),
            "input_shape": parsing.shape("--input-shape", self.input_shape),
            "drop_softmax": self.drop_softmax,
        }

    def network(self, model: str) -> Network:
        """The network in a file."""
        front = {name: getattr(self, name) for name in ("mean", "std")}
        front = {name: text and parsing.listed(f"--{name}", text) for name, text in front.items()}
        return load(model, **front, **self.arguments())

    def step(self, plant: str, controller: str | None) -> Network:
        """The loop of a plant, or of matrices A and B in a .npz file, and a controller; without, the plant itself."""
        arrays = stored(Path(plant)) if plant.lower().endswith(".npz") and os.path.isfile(plant) else {}
        if controller is None:
            if {"A", "B"} <= arrays.keys():
                raise InvalidInput(f"{plant} holds A and B of a plant; name its controller with --controller")
            return self.network(plant)
        control = self.network(controller)
        if not {"A", "B"} <= arrays.keys():
            return closed_loop(load(plant), control)
        known = {"offset", "disturbance"}
        if strange := sorted(arrays.keys() - known - {"A", "B"}):
            raise InvalidInput(f"{plant} has arrays A and B, which may go with {sorted(known)}; it also has {strange}")
        return feedback(arrays["A"], arrays["B"], control, **{name: arrays[name] for name in known & arrays.keys()})

    def name(self, model: str, controller: str | None = None) -> str:
        """What a theorem calls the model: its file, and the normalisation in front of it."""
        if controller is not None:
            return f"{os.path.basename(model)} in a loop with {self.name(controller)}"
        file = os.path.basename(model)
        if self.mean is None and self.std is None:
            return file
        mean, std = (f"({text})" if "," in text else text for text in (self.mean or "0", self.std or "1"))
        return f"{file} behind (x - {mean})/{std}"


_CENTER = (
    "Centre of the ball: a .npy or .npz file, numbers separated by commas, or 'zeros'. test.npz:7 is point 7,"
    " from 0, of a file with many."
)


@dataclass(frozen=True)
class CenterOptions:
    """Balls around a point, without their radius."""

    center: Annotated[Text, _region("FILE|NUMBERS|zeros", _CENTER)] = None
    clip: Annotated[
        tuple[str, str] | None, _region(_CORNERS, "Only inputs between these count, as in --clip 0 1 for images.")
    ] = None
    norm: NormOption = "l2"
    input_scale: InputScaleOption = None

    def ball(self, network: Network, radius: float) -> Ball:
        """The ball of a radius."""
        if self.center is None:
            raise InvalidInput("--center is missing: a file, numbers separated by commas, or zeros")
        center = parsing.vector("--center", self.center, network.inputs)
        clip = None if self.clip is None else parsing.corners("--clip", self.clip, network.inputs)
        return Ball(center, radius, clip, parsing.norm("--norm", self.norm, self.input_scale))


@dataclass(frozen=True)
class RegionOptions(CenterOptions):
    """A ball, a box, or all inputs."""

    radius: Annotated[
        float | None, _region("NUMBER", "Radius of the ball, in the norm of --norm.", "--radius", "--eps")
    ] = None
    box: Annotated[
        tuple[str, str] | None,
        _region(_CORNERS, "A box instead of a ball; each corner as for --center, or one number for all inputs."),
    ] = None

    def region(self, network: Network) -> Region:
        """The region for a network; all inputs without any option."""
        if self.radius is not None:
            if self.box is not None:
                raise InvalidInput("--box describes the whole region; leave out --center, --radius and --clip")
            return self.ball(network, self.radius)
        if self.center is not None:
            raise InvalidInput("--center needs --radius, as in --radius 0.1; without both the bound is global")
        if self.clip is not None or parsing.norm("--norm", self.norm, self.input_scale).name != L2.name:
            raise InvalidInput("--clip and --norm describe a ball: give --center and --radius too, or leave them out")
        return Everywhere() if self.box is None else Box(*parsing.corners("--box", self.box, network.inputs))


@dataclass(frozen=True)
class NormOptions:
    """The norms of a bound; inputs are in the units of the ball."""

    input_norm: Annotated[str, _norms(_NORM, "Norm of changes of the input.")] = "l2"
    output_norm: Annotated[str, _norms(_NORM, "Norm of changes of the output.")] = "l2"
    output_scale: Annotated[Text, _norms(_UNITS, "One unit of each output.")] = None

    def arguments(self, input_scale: str | None) -> dict[str, Norm]:
        """The norms as arguments of :func:`certify`."""
        return {
            "input_norm": parsing.norm("--input-norm", self.input_norm, input_scale),
            "output_norm": parsing.norm("--output-norm", self.output_norm, self.output_scale),
        }


def expanded(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the fields of each group in the place of the group."""
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    hints = get_type_hints(verb, include_extras=True)
    for parameter in signature(verb).parameters.values():
        kind = hints[parameter.name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind))
            continue
        groups[parameter.name] = kind
        inner = get_type_hints(kind, include_extras=True)
        parameters += [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=inner[field.name])
            for field in fields(kind)
        ]

    @wraps(verb)
    def command(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        verb(**values)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def check_figure(path: Path | None) -> None:
    """Check before the work that the figure of --plot can be drawn and written."""
    if path is not None:
        if path.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise InvalidInput(f"--plot must name a .png, .pdf or .svg file, got {path}")
        check_output("--plot", path)
        plots.figure()  # raises if matplotlib is missing


def check_output(name: str, path: Path | None, *inputs: str | Path) -> None:
    """Check before the work that the file of an option can be written and is not one of the inputs."""
    if path is None:
        return
    if any(path.exists() and os.path.exists(other) and path.samefile(other) for other in inputs):
        raise InvalidInput(f"{name} {path} would overwrite its source; give another file")
    require_writable(path)
