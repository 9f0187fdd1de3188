"""What the tests of the second opinion share."""

from __future__ import annotations

from typing import Any

import lipcert as lc
from lipcert import audit
from lipcert.errors import ProofFailed


def refusal(network: lc.Network, claim: Any, *other: Any) -> str:
    """Why ball arithmetic by itself, whatever the checker says, does not prove an answer; empty if it does."""
    kinds = {lc.Reach: audit.verify_reach, lc.Sensitivity: audit.verify_sensitivity}
    more = {lc.CertifiedRadius: audit.verify_radius, lc.Discrepancy: audit.verify_discrepancy}
    verify: Any = {**kinds, **more}.get(type(claim), audit.verify)
    try:
        verify(network, claim, *other)
    except ProofFailed as error:
        return str(error)
    return ""


def refused(network: lc.Network, claim: Any, *other: Any) -> bool:
    """Whether ball arithmetic by itself does not prove an answer."""
    return bool(refusal(network, claim, *other))
