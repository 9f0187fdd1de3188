"""What the tests of the second opinion share."""

from __future__ import annotations

from typing import Any

import lipcert as lc
from lipcert import audit
from lipcert.errors import ProofFailed


def refusal(network: lc.Network, claim: Any) -> str:
    """Why ball arithmetic by itself, whatever the checker says, does not prove an answer; empty if it does."""
    kinds = {lc.Reach: audit.verify_reach, lc.Sensitivity: audit.verify_sensitivity}
    verify: Any = {**kinds, lc.CertifiedRadius: audit.verify_radius}.get(type(claim), audit.verify)
    try:
        verify(network, claim)
    except ProofFailed as error:
        return str(error)
    return ""


def refused(network: lc.Network, claim: Any) -> bool:
    """Whether ball arithmetic by itself does not prove an answer."""
    return bool(refusal(network, claim))
