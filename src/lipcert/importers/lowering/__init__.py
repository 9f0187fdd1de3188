"""From a graph to a network: rewrites that keep the function, then a schedule."""

from lipcert.importers.lowering.lower import Lowered, Origin, lower

__all__ = ["Lowered", "Origin", "lower"]
