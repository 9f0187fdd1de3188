"""Answers on disk: one codec between values and JSON, and the documents that hold them."""
