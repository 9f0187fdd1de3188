"""Methods of the literature, as published, under the same call as lipcert's own."""

from lipcert.published.trivial import Trivial

__all__ = ["Trivial"]
