"""Activations that couple values of a layer: rows of a softmax, and sums of products.

The values v of a layer are, in this order, those of elementwise activations, those of softmax rows, and others, which
are there to be multiplied. Its results z are those of the elementwise activations, of the softmax rows and of the sums
of products. Any values may be factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lipcert.arguments.numbers import listed
from lipcert.arguments.values import CouplingValues
from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array, frozen


@dataclass(frozen=True, eq=False)
class Products:
    """z_k = Σ_j v[one_kj]·v[two_kj], for positions (outputs, terms) that are all different in one sum."""

    one: Array
    two: Array

    @property
    def both(self) -> Array:
        """The positions of all factors of each sum, (outputs, 2·terms)."""
        return np.concatenate([self.one, self.two], axis=1)

    @property
    def partners(self) -> Array:
        """The positions of their partners."""
        return np.concatenate([self.two, self.one], axis=1)


@dataclass(frozen=True, eq=False)
class Coupling(CouplingValues):
    """What couples the values of one layer.

    Attributes
    ----------
    plain : how many values have elementwise activations, the first ones.
    rows : (count, width) of softmax rows, which follow one after the other.
    products : sums of products.
    size : values of the layer.
    """

    plain: int
    rows: tuple[tuple[int, int], ...]
    products: tuple[Products, ...]
    size: int

    @staticmethod
    def of(plain: int, size: int, rows: Sequence[Any] = (), products: Sequence[Any] = ()) -> Coupling:
        """One whose positions are checked; products are pairs of arrays of positions."""
        widths = tuple((int(count), int(width)) for count, width in rows)
        pairs = []
        for pair in products:
            one, two = (frozen(np.array(part, dtype=np.int64)) for part in listed("products", pair))
            if one.ndim != 2 or one.shape != two.shape or not one.size:
                raise InvalidInput(f"products must be two arrays (outputs, terms) of positions, got {one.shape}")
            pairs.append(Products(one, two))
        found = Coupling(int(plain), widths, tuple(pairs), int(size))
        if not 0 <= plain <= size or any(count < 1 or width < 1 for count, width in widths):
            raise InvalidInput(f"a layer of {size} values cannot have {plain} plain ones and softmax rows {widths}")
        if found.factors > size:
            raise InvalidInput(f"{plain} plain values and softmax rows {widths} are more than {size} values")
        for product in pairs:
            both = np.sort(product.both, axis=1)
            if both.min() < 0 or both.max() >= size or (both[:, 1:] == both[:, :-1]).any():
                raise InvalidInput(f"factors must be different ones of {size} values in each sum")
        return found

    @property
    def factors(self) -> int:
        """Where values begin that are factors only."""
        return self.plain + sum(count * width for count, width in self.rows)

    @cached_property
    def width(self) -> int:
        """How many results there are."""
        return self.factors + sum(len(product.one) for product in self.products)

    def softmax_rows(self) -> Iterator[tuple[int, Array]]:
        """For each kind of softmax rows the first position and the positions (count, width), the same in v and z."""
        start = self.plain
        for count, width in self.rows:
            yield start, start + np.arange(count * width).reshape(count, width)
            start += count * width

    def sums(self) -> Iterator[tuple[Products, Array]]:
        """The sums of products, and the positions of their results in z."""
        start = self.factors
        for product in self.products:
            yield product, start + np.arange(len(product.one))
            start += len(product.one)

    def identity(self) -> Iterator[bytes]:
        """What tells one coupling from another."""
        yield f"|coupling {self.plain} {self.size} {self.rows} {[p.one.shape for p in self.products]}|".encode()
        for product in self.products:
            for part in (product.one, product.two):
                yield np.asarray(part, dtype="<i8").tobytes()
