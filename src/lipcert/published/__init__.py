"""Methods of the literature, as published, under the same call as lipcert's own."""

from lipcert.published.aao import AAO
from lipcert.published.base import NotApplicable, Published
from lipcert.published.eclipse import Eclipse, EclipseFast
from lipcert.published.eclipse_gen import EclipseGen, EclipseGenLocal
from lipcert.published.geolip import GeoLIP
from lipcert.published.glipsdp import GLipSDP
from lipcert.published.inequality import SolverFailed
from lipcert.published.jacobian_box import JacobianBox
from lipcert.published.lipdiff import LipDiff
from lipcert.published.lipsdp import LipSDP
from lipcert.published.seqlip import SeqLip
from lipcert.published.trivial import Trivial

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
