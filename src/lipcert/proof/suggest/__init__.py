"""Suggestions that a proof asks for; whatever they return, the proof holds."""
