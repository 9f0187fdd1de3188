"""Mistakes that several tests plant, to see that they are noticed."""

from __future__ import annotations

from typing import Any

import pytest

from lipcert.kernel.step import Image


def other_powers(patch: pytest.MonkeyPatch) -> None:
    """Ellipsoids and their exponents relative to different powers of two, one per layer."""
    honest = Image.block

    def block(image: Image, kept: Any = None) -> tuple[Any, Any]:
        S, exponent = honest(image, kept)
        return S, exponent - 1

    patch.setattr(Image, "block", block)
