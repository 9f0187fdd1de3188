"""Bounds on disk: the fields of a Certificate, in a document that is read strictly."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.norms import PLAIN, Norms
from lipcert.proof import document
from lipcert.proof.document import (
    array_in,
    array_out,
    curved_in,
    curved_out,
    fields,
    hints_in,
    hints_out,
    items,
    mapping,
    whole,
)
from lipcert.proof.hints import Part

_CLAIM = ("bound", "bound_decimal", "network", "region", "layers", "inputs", "outputs")
_PROOF = ("sweeps", "part_sweeps", "tree", "witness", "seconds", "verified")
_ORIGIN = ("method", "found_by")
_CURVED, _NORMS = "curved", "norms"
"""There only where a bound rests on them, so that earlier programs read all other certificates."""


def save(certificate: Any, path: str | os.PathLike[str]) -> None:
    """Write a Certificate (whose class uses this module); the file appears whole or not at all."""
    document.write(path, "bound", content(certificate))


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of a Certificate that :func:`save` wrote; raise UnreadableCertificate for anything else."""
    with document.damages(path):
        return certificate_in(document.read(path, "bound"))


def content(certificate: Any) -> dict[str, Any]:
    """A Certificate in JSON's types."""
    bound, part = float(certificate.bound), certificate.part
    if not 0.0 <= bound < np.inf:
        raise InvalidInput(f"a certificate without a finite bound cannot be saved; this one has {bound}")
    return {
        "bound": bound.hex(),
        "bound_decimal": repr(bound),
        "method": str(certificate.method),
        "found_by": str(certificate.found_by),
        "network": certificate.network,
        "region": document.region_out(certificate.region),
        "layers": [int(end) for end in part.layers],
        "inputs": None if part.inputs is None else [int(k) for k in part.inputs],
        "outputs": None if part.outputs is None else [int(k) for k in part.outputs],
        "sweeps": [hints_out(sweep) for sweep in certificate.sweeps],
        "part_sweeps": [hints_out(sweep) for sweep in certificate.part_sweeps],
        "tree": document.tree_out(certificate.tree),
        "witness": None if certificate.witness is None else array_out(certificate.witness),
        "seconds": float(certificate.seconds),
        "verified": bool(certificate.verified),
        **(
            {}
            if part.norms.plain
            else {_NORMS: [document.norm_out(norm) for norm in (part.norms.input, part.norms.output)]}
        ),
        **({} if certificate.curved is None else {_CURVED: curved_out(certificate.curved)}),
    }


def certificate_in(stored: Any) -> dict[str, Any]:
    """The fields of a Certificate that :func:`content` wrote, with these names for where it came from."""
    stored = dict(mapping(stored))
    curved = curved_in(stored.pop(_CURVED)) if _CURVED in stored else None
    norms = Norms(*(document.norm_in(norm) for norm in items(stored.pop(_NORMS), 2))) if _NORMS in stored else PLAIN
    values = fields(stored, *_CLAIM, *_PROOF, *_ORIGIN)
    claim, decimal, network, region, layers, inputs, outputs = values[: len(_CLAIM)]
    sweeps, part_sweeps, tree, witness, seconds, verified = values[len(_CLAIM) : -len(_ORIGIN)]
    bound = document.hexadecimal(claim)
    if repr(bound) != decimal:
        raise ValueError("its two statements of the bound differ")
    start, stop = (whole(end) for end in items(layers, 2))
    ends = [None if end is None else tuple(whole(k) for k in items(end)) for end in (inputs, outputs)]
    document.truth(verified, "verified")
    return {
        "bound": bound,
        "region": document.region_in(region),
        "network": document.digest(network),
        "part": Part((start, stop), ends[0], ends[1], norms),
        "layers": (),
        "sweeps": tuple(map(hints_in, items(sweeps))),
        "part_sweeps": tuple(map(hints_in, items(part_sweeps))),
        "seconds": document.real(seconds),
        "verified": False,  # what a file says of itself is no proof
        "tree": document.tree_in(tree),
        "witness": None if witness is None else array_in(witness, 1),
        "curved": curved,
        **{name: document.shown(stored[name]) for name in _ORIGIN},
    }
