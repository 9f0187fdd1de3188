"""Closed loops: networks put together, tubes, contraction and invariant sets."""
