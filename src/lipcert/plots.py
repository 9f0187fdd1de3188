"""Figures, under the name that users know; the code is in :mod:`lipcert.show.plots`."""

from lipcert.show.plots import (
    axes,
    certified_share,
    comparison,
    figure,
    logarithmic,
    radius_curve,
    reach_set,
    save,
    sensitivity_map,
)

__all__ = [
    "axes",
    "certified_share",
    "comparison",
    "figure",
    "logarithmic",
    "radius_curve",
    "reach_set",
    "save",
    "sensitivity_map",
]
