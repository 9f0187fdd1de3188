"""Certified Lipschitz bounds for neural networks."""

from lipcert import published
from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.answers.sensitivity import Sensitivity
from lipcert.errors import (
    CampaignStopped,
    Interrupted,
    InvalidInput,
    LipcertError,
    ProofFailed,
    UnreadableCertificate,
    UnreadableModel,
    UnreadableResults,
)
from lipcert.importers import load
from lipcert.importers.kernels import conv_stack
from lipcert.methods.greedy import ClosedForm, Diagonal, Scalar
from lipcert.methods.joint import Joint
from lipcert.methods.lower import LowerBound, lower_bound
from lipcert.methods.method import Greedy, Method, Stage
from lipcert.methods.split import Auto, Split
from lipcert.model.activations import Activation, activation
from lipcert.model.convolution import Convolution
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network
from lipcert.model.regions import L1, L2, Ball, Box, Everywhere, LInf
from lipcert.questions.attacks import Attack, attack
from lipcert.questions.campaign import Results, campaign
from lipcert.questions.certify import certify, certify_many
from lipcert.questions.define import define_activation, piecewise_linear
from lipcert.questions.loops.compose import closed_loop, compose, feedback
from lipcert.questions.loops.contraction import Contraction, contraction
from lipcert.questions.loops.discrepancy import Discrepancy, difference, evaluation_error
from lipcert.questions.loops.invariant import InvariantEllipsoid, invariant_ellipsoid
from lipcert.questions.loops.tube import Tube, tube
from lipcert.questions.radius import certified_radius
from lipcert.questions.reach import reach
from lipcert.questions.sensitivity import sensitivity
from lipcert.questions.sweep import SweepRow, sweep
from lipcert.questions.verify import load_answer, save_answer, verify
from lipcert.suggest.hints import Linear, Lipschitz

__version__ = "0.2.0"

__all__ = [
    "L1",
    "L2",
    "Activation",
    "Attack",
    "Auto",
    "Ball",
    "Box",
    "CampaignStopped",
    "Certificate",
    "CertifiedRadius",
    "ClosedForm",
    "Contraction",
    "Convolution",
    "Coupling",
    "Diagonal",
    "Discrepancy",
    "Everywhere",
    "Greedy",
    "Interrupted",
    "InvalidInput",
    "InvariantEllipsoid",
    "Joint",
    "LInf",
    "Linear",
    "LipcertError",
    "Lipschitz",
    "LowerBound",
    "Method",
    "Network",
    "ProofFailed",
    "Reach",
    "Results",
    "Scalar",
    "Sensitivity",
    "Split",
    "Stage",
    "SweepRow",
    "Tube",
    "UnreadableCertificate",
    "UnreadableModel",
    "UnreadableResults",
    "activation",
    "attack",
    "campaign",
    "certified_radius",
    "certify",
    "certify_many",
    "closed_loop",
    "compose",
    "contraction",
    "conv_stack",
    "define_activation",
    "difference",
    "evaluation_error",
    "feedback",
    "invariant_ellipsoid",
    "load",
    "load_answer",
    "lower_bound",
    "piecewise_linear",
    "published",
    "reach",
    "save_answer",
    "sensitivity",
    "sweep",
    "tube",
    "verify",
]
