"""A method of your own beside lipcert's, and a wrong one: its bound is loose, but still proved.

``Dominant`` makes T − R diagonally dominant, and so positive definite, by row sums. A factor of 0.3 is too small. The
engine enlarges such multipliers until they are feasible, proves the bound, and says so in a note.

Run: python examples/own_method.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.questions.compare import compare


@dataclass(frozen=True)
class Dominant(lc.Greedy):
    """T_j = factor · Σ_k |R_jk| with R = D_r S D_r."""

    factor: float = 2.0

    def choose(self, stage: lc.Stage) -> Array:
        R = stage.r[:, None] * stage.S * stage.r
        return self.factor * np.abs(R).sum(axis=1)


def main() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape) / np.sqrt(shape[1]) for shape in ((40, 6), (40, 40), (40, 40), (2, 40))]
    network, ball = lc.Network.from_weights(weights, activation="relu"), lc.Ball(np.zeros(6), 1.0)
    methods = {"dominant": Dominant(), "careless": Dominant(0.3), "closed-form": "closed-form", "joint": "joint"}
    found = compare(network, ball, methods, timeout=60.0)
    assert found.lower is not None
    print(f"lower bound  {found.lower.value:.4f}")
    for row in found.rows:
        print(f"{row.name:12} {row.bound:.4f}  {row.status}{f'  ({row.note})' if row.note else ''}")


if __name__ == "__main__":
    main()
