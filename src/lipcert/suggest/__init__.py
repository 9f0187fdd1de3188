"""Suggestions that the proofs ask for: slopes, multipliers, guesses. Not trusted: any numbers are safe, poor ones cost
tightness only. It knows the model, and nothing of the proofs.
"""
