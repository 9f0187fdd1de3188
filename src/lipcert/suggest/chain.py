"""Suggestions in plain floating point: multipliers for given slopes. Nothing here is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import Array

_TOP, _SHARPNESS = 5, 10.0
"""So many top directions have a say, weighted by this power of their share of the norm."""
_STRIDE, _PACE = 1.0, 0.5
"""The largest change of a multiplier at once, in powers of two; the share of what is wished for that is tried first."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Weights as floats of norm near one, times 2**powers."""

    weights: list[Array]
    powers: list[int]

    @staticmethod
    def of(weights: Sequence[Array]) -> Chain:
        first = [int(np.frexp(np.abs(weight).max(initial=0.0))[1]) for weight in weights]
        scaled = [np.ldexp(weight, -p) for weight, p in zip(weights, first, strict=True)]
        more = [int(np.frexp(np.linalg.norm(weight, 2))[1]) for weight in scaled]
        powers = [a + b for a, b in zip(first, more, strict=True)]
        return Chain([np.ldexp(weight, -p) for weight, p in zip(scaled, more, strict=True)], powers)

    def suggest(
        self, slopes: Sequence[tuple[Array, Array]], start: list[Array] | None, rounds: int, enough: float
    ) -> tuple[float, list[Array] | None, list[Array]]:
        """About the smallest bound found, its multipliers (relative to 4**sum(powers) up to the layer), and shares.

        With a the top direction at the end carried back to a layer, x = D_m a and K = (S⁻¹ - D_r²T⁻¹)⁻¹, the squared
        norm is stationary in T_j at r_j |(K x)_j|/|a_j|; each round goes some of the way there.
        """
        ranges = [(0.5 * (a + b), 0.5 * (b - a)) for a, b in slopes]
        tried = [np.zeros(len(m)) for m, _ in ranges] if start is None else start
        best, kept, shares, pace = np.inf, start, list[Array](), _PACE
        step = [np.zeros(len(m)) for m, _ in ranges]
        with np.errstate(all="ignore"):
            for _ in range(rounds):
                try:
                    norm, used, wish, share = self._round(ranges, tried)
                except np.linalg.LinAlgError:
                    norm = np.inf
                if norm < best:
                    best, kept, shares, pace = norm, used, share, min(_PACE, 1.5 * pace)
                    step = [np.log2(new) - np.log2(old) for old, new in zip(used, wish, strict=True)]
                else:
                    pace *= 0.4
                if np.ldexp(best, sum(self.powers)) <= enough or kept is None:
                    break
                moves = [np.clip(pace * np.nan_to_num(one), -_STRIDE, _STRIDE) for one in step]
                tried = [old * np.exp2(move) for old, move in zip(kept, moves, strict=True)]
        return float(np.ldexp(best, sum(self.powers))), kept, shares

    def _round(
        self, ranges: list[tuple[Array, Array]], tried: list[Array]
    ) -> tuple[float, list[Array], list[Array], list[Array]]:
        P = np.eye(self.weights[0].shape[1])
        kept = []
        for weight, (m, r), T in zip(self.weights, ranges, tried):
            S = weight @ P @ weight.T
            axes = np.sqrt(np.maximum(np.diagonal(S), 0.0))
            safe = r * axes * (2.0 * (r * axes).sum() + np.linalg.norm(m * axes))
            T = np.where((T > 0) & (r > 0), T, safe)
            s = np.where(r > 0, r / np.sqrt(np.where(T > 0, T, 1.0)), 0.0)
            top = float(np.linalg.eigvalsh(s[:, None] * S * s)[-1])
            if top > 1.0 - 1e-6:
                T, s = T * (1.02 * top), s / np.sqrt(1.02 * top)
            H = np.linalg.solve(np.eye(len(S)) - s[:, None] * S * s, s[:, None] * S)  # (I - D_s S D_s)⁻¹ D_s S
            K = S + (S * s) @ H
            K = 0.5 * (K + K.T)
            P = m[:, None] * K * m + np.diag(np.where(r > 0, T, 0.0))
            kept.append((K, H, s, T))
        last = self.weights[-1]
        S = last @ P @ last.T
        values, vectors = np.linalg.eigh(0.5 * (S + S.T))
        values = np.maximum(values[-_TOP:], 0.0)
        weights = (values / max(values[-1], 1e-300)) ** _SHARPNESS
        a = last.T @ (vectors[:, -_TOP:] * np.sqrt(weights / max(weights.sum(), 1e-300)))
        wish, shares = [], []
        for weight, (m, r), (K, H, s, T) in zip(self.weights[-2::-1], ranges[::-1], kept[::-1], strict=True):
            x = m[:, None] * a
            pushed, arrived = ((K @ x) ** 2).sum(axis=1), (a**2).sum(axis=1)
            wish.append(np.where(r > 0, r * np.sqrt(pushed / np.maximum(arrived, 1e-300)), T))
            shares.append(np.where(r > 0, T * arrived, 0.0))
            a = weight.T @ (x + s[:, None] * (H @ x))
        return float(np.sqrt(values[-1])), [T for *_, T in kept], wish[::-1], shares[::-1]
