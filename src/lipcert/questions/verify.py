"""A certificate again: by the trusted package, or by ball arithmetic."""

from __future__ import annotations

from lipcert.errors import InvalidInput
from lipcert.model.network import Network
from lipcert.proof import checker
from lipcert.proof.certificate import Certificate
from lipcert.runtime.threads import suited_to


def verify(network: Network, certificate: Certificate, exact: bool = False) -> float:
    """Re-derive a certificate's bound from its hints.

    Parameters
    ----------
    network
        The network that the certificate is about.
    certificate
        What :func:`certify` returned or :meth:`Certificate.load` read; nothing in it is believed.
    exact
        Ask for a second opinion: the proof is made in ball arithmetic, by other code, which takes longer. It needs
        python-flint, ``pip install "lipcert[exact]"``.

    Returns
    -------
    float
        The bound as proved now: ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of the certificate's region, in real
        arithmetic, for the function given by the network's float64 weights.

    Raises
    ------
    ProofFailed
        If the network is another one, or the hints do not prove the bound that the certificate claims.
    """
    if not isinstance(network, Network) or not isinstance(certificate, Certificate):
        raise InvalidInput(
            f"verify takes a Network and a Certificate, got {type(network).__name__} and {type(certificate).__name__};"
            " read them with load and Certificate.load"
        )
    if exact:
        from lipcert.exact import verify as second_opinion

        return second_opinion(network, certificate)
    with suited_to(max(network.sizes)):
        return checker.verify(network, certificate)
