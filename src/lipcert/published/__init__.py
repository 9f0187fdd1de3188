"""Methods of the literature, as published, under the same call as lipcert's own."""

from lipcert.methods.semidefinite import SolverFailed
from lipcert.published.base import NotApplicable, Published
from lipcert.published.eclipse import Eclipse, EclipseFast, EclipseGen, EclipseGenLocal
from lipcert.published.lipsdp import GeoLIP, GLipSDP, LipDiff, LipSDP
from lipcert.published.norms import AAO, JacobianBox, SeqLip, Trivial

__all__ = [
    "AAO",
    "Eclipse",
    "EclipseFast",
    "EclipseGen",
    "EclipseGenLocal",
    "GLipSDP",
    "GeoLIP",
    "JacobianBox",
    "LipDiff",
    "LipSDP",
    "NotApplicable",
    "Published",
    "SeqLip",
    "SolverFailed",
    "Trivial",
]
