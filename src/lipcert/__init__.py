"""Certified ℓ2 Lipschitz bounds for neural networks."""

from lipcert import published
from lipcert.activations import Activation, activation
from lipcert.auto import Auto
from lipcert.certificate import Certificate
from lipcert.certify import certify
from lipcert.enclosures import Linear, Lipschitz
from lipcert.errors import InvalidInput, LipcertError, ProofFailed, UnreadableCertificate, UnreadableModel
from lipcert.importers import load
from lipcert.lower import LowerBound, lower_bound
from lipcert.multipliers import ClosedForm, Diagonal, Joint, Scalar
from lipcert.network import Network
from lipcert.regions import Ball, Box, Everywhere
from lipcert.split import Split
from lipcert.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Activation",
    "Auto",
    "Ball",
    "Box",
    "Certificate",
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
    "Scalar",
    "Split",
    "UnreadableCertificate",
    "UnreadableModel",
    "activation",
    "certify",
    "load",
    "lower_bound",
    "published",
    "verify",
]
