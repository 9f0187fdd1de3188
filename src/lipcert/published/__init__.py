"""Methods of the literature, as published, under the same call as lipcert's own."""

from lipcert.methods.semidefinite import SolverFailed
from lipcert.published.base import NotApplicable, Published
from lipcert.published.eclipse import Eclipse, EclipseFast, EclipseGenLocal
from lipcert.published.lipsdp import GeoLIP, GLipSDP, LipDiff, LipSDP
from lipcert.published.norms import AAO, SeqLip, Trivial

__all__ = [
    "AAO",
    "Eclipse",
    "EclipseFast",
    "EclipseGenLocal",
    "GLipSDP",
    "GeoLIP",
    "LipDiff",
    "LipSDP",
    "NotApplicable",
    "Published",
    "SeqLip",
    "SolverFailed",
    "Trivial",
]
