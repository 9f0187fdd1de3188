"""Names for the array types that signatures speak of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array: TypeAlias = NDArray[Any]
"""A numpy array; of float64 unless the docstring says otherwise."""

Floats: TypeAlias = NDArray[np.float64]
Parameter: TypeAlias = float | Array
Weight: TypeAlias = "NDArray[np.float64] | sparse.csr_array"
"""A weight matrix (outputs, inputs), dense or sparse."""
