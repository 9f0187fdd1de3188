"""Proof in floating point: every bound re-derived with outward rounding.

What is here imports no optimiser and no method; it shares with the engine the network, the region and the table of
activations, and takes everything else from the hints of a certificate.
"""

from lipcert.verify.checker import prove, verify

__all__ = ["prove", "verify"]
