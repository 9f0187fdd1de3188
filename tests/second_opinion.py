"""What the tests of the second opinion share."""

from __future__ import annotations

from typing import Any

import lipcert as lc
from lipcert import audit
from lipcert.errors import ProofFailed


def proved(network: lc.Network, claim: Any) -> Any:
    """What ball arithmetic proves of an answer by itself, whatever the checker says; or ProofFailed."""
    kinds = {lc.Reach: audit.verify_reach, lc.Sensitivity: audit.verify_sensitivity}
    return {**kinds, lc.CertifiedRadius: audit.verify_radius}.get(type(claim), audit.verify)(network, claim)


def refused(network: lc.Network, claim: Any) -> bool:
    """Whether ball arithmetic by itself does not prove an answer."""
    try:
        proved(network, claim)
    except ProofFailed:
        return True
    return False
