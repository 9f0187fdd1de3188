"""Options that verbs share, and groups of them.

A verb takes a group as one argument, as in ``where: RegionOptions``; :func:`expanded` turns it into the options that
typer shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from lipcert.cli import parsing
from lipcert.errors import InvalidInput
from lipcert.files.whole import require_writable
from lipcert.importers import load
from lipcert.methods.method import Method
from lipcert.model.network import Network
from lipcert.model.norms import L2, Norm
from lipcert.model.regions import Ball, Box, Everywhere, Region
from lipcert.questions.names import OWN
from lipcert.runtime.clock import Clock, timed
from lipcert.show import plots

_MODEL = {"rich_help_panel": "How the model is read"}
_REGION = {"rich_help_panel": "Region: a ball or a box"}
_NORMS = {"rich_help_panel": "Norms and units (default: ℓ2, as the numbers are)", "metavar": "l1|l2|linf"}
_UNITS = _NORMS | {"metavar": "NUMBERS|FILE"}
PART = "Part of the network (default: all of it)"
_PART = {"rich_help_panel": PART, "metavar": "I,J,…"}

ModelArgument: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="A .onnx, .npz, .mat or .pt file.")]
NormOption: TypeAlias = Annotated[
    str, typer.Option("--norm", help="Norm of the ball, in the units of --input-scale.", **_NORMS)
]
InputScaleOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="One unit of each input, as in 0.1,100: for --input-norm, and for the ball.", **_UNITS),
]
InputsOption: TypeAlias = Annotated[
    str | None, typer.Option(help="Input coordinates, from 0; the others fixed.", **_PART)
]
OutputsOption: TypeAlias = Annotated[str | None, typer.Option(help="Output coordinates, from 0.", **_PART)]
SecondsOption: TypeAlias = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Time limit; the first bound may take longer.")
]
LowerOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--lower-bound/--no-lower-bound", help="Also search a lower bound, which shows how tight the result is."
    ),
]
CertificateOption: TypeAlias = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="Save the proof; lipcert verify checks it.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def _method(default: str) -> Any:
    return typer.Option(
        parser=parsing.method,
        metavar="|".join(OWN),
        help=f"How tight and how slow; see docs/how-to-choose.md. \\[default: {default}]",  # a bare [ would be markup
        show_default=False,
    )


MethodOption: TypeAlias = Annotated[Method | None, _method("auto")]
SweepMethodOption: TypeAlias = Annotated[Method | None, _method("joint")]


@dataclass(frozen=True)
class ReadingOptions:
    """How a model file becomes a network."""

    activation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="If the file does not say: a name such as relu or 'leaky_relu(0.2)', or one per layer with commas.",
            **_MODEL,
        ),
    ] = None
    input_shape: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="Shape of one input, as in 3,32,32, if the model leaves it open.", **_MODEL),
    ] = None
    drop_softmax: Annotated[
        bool, typer.Option("--drop-softmax", help="Take the logits before a final softmax as the output.", **_MODEL)
    ] = False
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS|FILE",
            help="Put (x - mean)/std in front of the model: one number, one per channel, or one per input.",
            **_MODEL,
        ),
    ] = None
    std: Annotated[str | None, typer.Option(metavar="NUMBERS|FILE", help="See --mean.", **_MODEL)] = None
    fixed: Annotated[
        list[str] | None,
        typer.Option(
            "--fixed",
            metavar="NAME=FILE|NUMBERS",
            help="A constant value for one of several inputs, as in mask=1,0,1 or mask=mask.npy. May be repeated.",
            **_MODEL,
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="NAME|N", help="One of several outputs, by name or place.", **_MODEL),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of :func:`load`, without mean and std."""
        return {
            "activation": parsing.activations(self.activation),
            "input_shape": parsing.shape("--input-shape", self.input_shape),
            "drop_softmax": self.drop_softmax,
            "fixed": parsing.fixed_values(self.fixed),
            "output": self.output,
        }

    def network(self, model: str) -> Network:
        """The network in a file."""
        mean, std = parsing.listed("--mean", self.mean), parsing.listed("--std", self.std)
        return load(model, mean=mean, std=std, **self.arguments())

    def name(self, model: str) -> str:
        """What a theorem calls the model: its file, and the normalisation in front of it."""
        file = os.path.basename(model)
        if self.mean is None and self.std is None:
            return file
        mean, std = (f"({text})" if "," in text else text for text in (self.mean or "0", self.std or "1"))
        return f"{file} behind (x - {mean})/{std}"


@dataclass(frozen=True)
class CenterOptions:
    """Balls around a point, without their radius."""

    center: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NUMBERS|zeros",
            help="Centre of the ball: a .npy, .npz or .csv file, numbers separated by commas, or 'zeros'. test.npz:7 is"
            " point 7, from 0, of a file with many.",
            **_REGION,
        ),
    ] = None
    clip: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="LOWER UPPER", help="Only inputs between these count, as in --clip 0 1 for images.", **_REGION
        ),
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
        float | None,
        typer.Option(
            *("--radius", "--eps"), metavar="NUMBER", help="Radius of the ball, in the norm of --norm.", **_REGION
        ),
    ] = None
    box: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="LOWER UPPER",
            help="A box instead of a ball; each corner as for --center, or one number for all inputs.",
            **_REGION,
        ),
    ] = None

    def region(self, network: Network) -> Region:
        """The region for a network; all inputs without any option."""
        no_ball = self.center is None and self.radius is None
        norm = parsing.norm("--norm", self.norm, self.input_scale)
        if norm.name != L2.name and (self.box is not None or no_ball):
            raise InvalidInput("--norm is that of a ball: give --center and --radius too, or leave it out")
        if self.box is not None:
            if not no_ball or self.clip is not None:
                raise InvalidInput("--box describes the whole region; leave out --center, --radius and --clip")
            return Box(*parsing.corners("--box", self.box, network.inputs))
        if no_ball:
            if self.clip is not None:
                raise InvalidInput("--clip needs a ball to clip: give --center and --radius; for a box alone use --box")
            return Everywhere()
        if self.center is None:
            raise InvalidInput("--radius needs --center: a file, numbers separated by commas, or zeros")
        if self.radius is None:
            raise InvalidInput("--center needs --radius, as in --radius 0.1; without both the bound is global")
        return self.ball(network, self.radius)


@dataclass(frozen=True)
class NormOptions:
    """The norms of a bound; units of the inputs are those of the ball."""

    input_norm: Annotated[str, typer.Option(help="Norm of changes of the input.", **_NORMS)] = "l2"
    output_norm: Annotated[str, typer.Option(help="Norm of changes of the output.", **_NORMS)] = "l2"
    output_scale: Annotated[str | None, typer.Option(help="One unit of each output.", **_UNITS)] = None

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
        for field in fields(kind):
            default = Parameter.empty if field.default is MISSING else field.default
            annotation = inner[field.name]
            parameters.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))

    @wraps(verb)
    def command(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        verb(**values)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def limit(seconds: float | None) -> AbstractContextManager[Clock]:
    """A clock with the time limit of a verb."""
    if seconds is not None and not seconds > 0.0:
        raise InvalidInput(f"--seconds must be above 0, got {seconds}")
    return timed(seconds)


def check_figure(option: str, path: Path | None) -> None:
    """Check before the work that a figure can be drawn and written."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".pdf", ".svg") or not path.parent.is_dir():
        raise InvalidInput(f"{option} must name a .png, .pdf or .svg file in a folder that exists, got {path}")
    check_output(option, path)
    plots.axes()  # raises if matplotlib is missing


def check_output(option: str, path: Path | None, *inputs: str | Path) -> None:
    """Check before the work that a file can be written and is not one of the inputs."""
    if path is None:
        return
    for other in inputs:
        if path.exists() and os.path.exists(other) and path.samefile(other):
            raise InvalidInput(f"{option} {path} would overwrite {other}; give another file")
    require_writable(path)
