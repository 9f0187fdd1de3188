"""The methods by name, as the command line has them and as strings in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lipcert.errors import InvalidInput
from lipcert.published import (
    AAO,
    Eclipse,
    EclipseFast,
    EclipseGen,
    EclipseGenLocal,
    GeoLIP,
    GLipSDP,
    JacobianBox,
    LipDiff,
    LipSDP,
    SeqLip,
    Trivial,
)
from lipcert.search.auto import Auto
from lipcert.search.closed_form import ClosedForm
from lipcert.search.diagonal import Diagonal
from lipcert.search.joint import Joint
from lipcert.search.method import Method
from lipcert.search.scalar import Scalar
from lipcert.search.split import Split

PUBLISHED: Final[Mapping[str, Callable[[], Method]]] = {
    "trivial": Trivial,
    "seqlip": SeqLip,
    "aao": AAO,
    "lipdiff": LipDiff,
    "geolip": GeoLIP,
    "lipsdp-layer": lambda: LipSDP("layer"),
    "lipsdp-layer-split": lambda: LipSDP("layer", split=10),
    "lipsdp-neuron": lambda: LipSDP("neuron"),
    "lipsdp-neuron-split": lambda: LipSDP("neuron", split=10),
    "glipsdp": GLipSDP,
    "eclipse-fast": EclipseFast,
    "eclipse": Eclipse,
    "eclipse-gen-cf": lambda: EclipseGen("CF"),
    "eclipse-gen-fast": lambda: EclipseGen("Fast"),
    "eclipse-gen-acc": lambda: EclipseGen("Acc"),
    "eclipse-gen-local-cf": lambda: EclipseGenLocal("CF"),
    "eclipse-gen-local-fast": lambda: EclipseGenLocal("Fast"),
    "eclipse-gen-local-acc": lambda: EclipseGenLocal("Acc"),
    "jacobian-box": JacobianBox,
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
"""lipcert's own."""

METHODS: Final = {**PUBLISHED, **OWN}


def method_of(given: Any, name: str = "method") -> Method:
    """A method: the value itself, or one with default options by its name, in which case and dashes do not matter.

    Examples
    --------
    >>> method_of("closed-form"), method_of("ClosedForm")
    (ClosedForm(), ClosedForm())
    """
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        known = {_squeezed(key): make for key, make in METHODS.items()}
        if _squeezed(given) in known:
            return known[_squeezed(given)]()
        raise InvalidInput(f"{name}: {given!r} is unknown; known are {', '.join(METHODS)}")
    if isinstance(given, type) and issubclass(given, Method):
        raise InvalidInput(f"{name} must be a value, not a class; write {given.__name__}()")
    raise InvalidInput(f"{name} must be a value such as Scalar(), or a name such as 'scalar'; got {given!r}")


def _squeezed(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
