"""Certified ℓ2 Lipschitz bounds for neural networks."""

from lipcert import published
from lipcert.activations import Activation, activation
from lipcert.attacks import Attack, attack
from lipcert.auto import Auto
from lipcert.campaign import Results, campaign
from lipcert.certificate import Certificate
from lipcert.certify import certify
from lipcert.enclosures import Linear, Lipschitz
from lipcert.errors import (
    CampaignStopped,
    InvalidInput,
    LipcertError,
    ProofFailed,
    UnreadableCertificate,
    UnreadableModel,
    UnreadableResults,
)
from lipcert.importers import load
from lipcert.lower import LowerBound, lower_bound
from lipcert.multipliers import ClosedForm, Diagonal, Joint, Scalar
from lipcert.network import Network
from lipcert.reachability import Reach, reach
from lipcert.regions import Ball, Box, Everywhere
from lipcert.robustness import CertifiedRadius, certified_radius
from lipcert.sensitivity import Sensitivity, sensitivity
from lipcert.split import Split
from lipcert.sweep import SweepRow, sweep
from lipcert.verify import verify

__version__ = "0.2.0"

__all__ = [
    "Activation",
    "Attack",
    "Auto",
    "Ball",
    "Box",
    "CampaignStopped",
    "Certificate",
    "CertifiedRadius",
    "ClosedForm",
    "Diagonal",
    "Everywhere",
    "InvalidInput",
    "Joint",
    "Linear",
    "LipcertError",
    "Lipschitz",
    "LowerBound",
    "Network",
    "ProofFailed",
    "Reach",
    "Results",
    "Scalar",
    "Sensitivity",
    "Split",
    "SweepRow",
    "UnreadableCertificate",
    "UnreadableModel",
    "UnreadableResults",
    "activation",
    "attack",
    "campaign",
    "certified_radius",
    "certify",
    "load",
    "lower_bound",
    "published",
    "reach",
    "sensitivity",
    "sweep",
    "verify",
]
