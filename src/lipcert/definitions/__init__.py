"""Activations in ball arithmetic, from their definitions alone: formulas, and what users declare, held against them."""

from lipcert.errors import LipcertError

try:
    import flint  # noqa: F401
except ImportError:
    raise LipcertError('exact proofs need python-flint: pip install "lipcert[exact]"') from None
