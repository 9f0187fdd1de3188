"""Methods by name, for the command line and for strings in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lipcert import published
from lipcert.errors import InvalidInput
from lipcert.methods.auto import Auto
from lipcert.methods.greedy import ClosedForm, Diagonal, Scalar
from lipcert.methods.joint import Joint
from lipcert.methods.method import Method
from lipcert.methods.split import Split

PUBLISHED: Final[Mapping[str, Callable[[], Method]]] = {
    "trivial": published.Trivial,
    "seqlip": published.SeqLip,
    "aao": published.AAO,
    "lipdiff": published.LipDiff,
    "geolip": published.GeoLIP,
    "lipsdp-layer": lambda: published.LipSDP("layer"),
    "lipsdp-layer-split": lambda: published.LipSDP("layer", split=10),
    "lipsdp-neuron": lambda: published.LipSDP("neuron"),
    "lipsdp-neuron-split": lambda: published.LipSDP("neuron", split=10),
    "glipsdp": published.GLipSDP,
    "eclipse-fast": published.EclipseFast,
    "eclipse": published.Eclipse,
    "eclipse-gen-cf": lambda: published.EclipseGen("CF"),
    "eclipse-gen-fast": lambda: published.EclipseGen("Fast"),
    "eclipse-gen-acc": lambda: published.EclipseGen("Acc"),
    "eclipse-gen-local-cf": lambda: published.EclipseGenLocal("CF"),
    "eclipse-gen-local-fast": lambda: published.EclipseGenLocal("Fast"),
    "eclipse-gen-local-acc": lambda: published.EclipseGenLocal("Acc"),
    "jacobian-box": published.JacobianBox,
}
"""The methods of the literature."""

OWN: Final[Mapping[str, Callable[[], Method]]] = {
    "closed-form": ClosedForm,
    "scalar": Scalar,
    "diagonal": Diagonal,
    "joint": Joint,
    "auto": Auto,
    "split": Split,
}
"""The methods of lipcert."""

METHODS: Final = {**PUBLISHED, **OWN}


def method_of(method: Any, argument: str = "method") -> Method:
    """A method: the value itself, or the method of that name with default options. Case and dashes do not matter.

    Examples
    --------
    >>> method_of("closed-form"), method_of("ClosedForm")
    (ClosedForm(), ClosedForm())
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        known = {_squeezed(key): make for key, make in METHODS.items()}
        if _squeezed(method) in known:
            return known[_squeezed(method)]()
        raise InvalidInput(f"{argument}: {method!r} is unknown; known are {', '.join(METHODS)}")
    if isinstance(method, type) and issubclass(method, Method):
        raise InvalidInput(f"{argument} must be a value, not a class; write {method.__name__}()")
    raise InvalidInput(f"{argument} must be a value such as Scalar(), or a name such as 'scalar'; got {method!r}")


def _squeezed(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
