"""Training with the local Lipschitz bound: a differentiable bound, a loss, and certification as training goes on.

This package needs PyTorch. Numbers here are floating point; proofs come from :func:`lipcert.certify` and
:func:`lipcert.certified_radius`, which :class:`Certification` calls every few epochs.
"""

from __future__ import annotations

from lipcert.training.bound import local_bound
from lipcert.training.certification import Certification
from lipcert.training.loss import certified_margin_loss, growing

__all__ = ["Certification", "certified_margin_loss", "growing", "local_bound"]
