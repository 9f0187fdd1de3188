"""Ways to bound what each neuron sees over the region."""

from lipcert.enclosures.base import Enclosure, Interval, Pass
from lipcert.enclosures.linear import Linear
from lipcert.enclosures.lipschitz import Lipschitz

__all__ = ["Enclosure", "Interval", "Linear", "Lipschitz", "Pass"]
