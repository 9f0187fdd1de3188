"""Groups of options that several verbs share, and how a verb takes a whole group as one argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from lipcert.cli import given, options
from lipcert.model.network import Network
from lipcert.model.regions import Region


@dataclass(frozen=True)
class ReadingOptions:
    """How a model file becomes a network."""

    activation: options.ActivationOption = None
    input_shape: options.InputShapeOption = None
    drop_softmax: options.DropSoftmaxOption = False
    mean: options.MeanOption = None
    std: options.StdOption = None
    fixed: given.FixedOption = None
    output: given.OutputOption = None

    def network(self, model: str) -> Network:
        """The network in a file."""
        before = self.activation, self.input_shape, self.drop_softmax, self.mean, self.std
        return options.network(model, *before, given.values(self.fixed), self.output)

    def name(self, model: str) -> str:
        """What a theorem calls the model."""
        return options.model_name(model, self.mean, self.std)


@dataclass(frozen=True)
class RegionOptions:
    """A ball, a box, or all inputs."""

    center: options.CenterOption = None
    radius: options.RadiusOption = None
    box: options.BoxOption = None
    clip: options.ClipOption = None
    point: options.PointOption = None
    norm: options.NormOption = "l2"
    input_scale: options.InputScaleOption = None

    def region(self, network: Network) -> Region:
        """The region for a network."""
        norm = options.norm("--norm", self.norm, self.input_scale)
        return options.region_of(network, self.center, self.radius, self.box, self.clip, self.point, norm)


def expanded(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as typer needs it: the fields of a group in the place of the group."""
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
            name = field.name
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=inner[name]))

    @wraps(verb)
    def command(**values: Any) -> None:
        made = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        verb(**made, **values)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
