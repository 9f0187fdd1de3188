"""What can go wrong, as exceptions that say what to do about it."""

from __future__ import annotations


class LipcertError(Exception):
    """Root of every error that lipcert raises on purpose."""


class InvalidInput(LipcertError, ValueError):
    """An argument is not what the function needs; the message names it, its value and the remedy."""


class UnreadableModel(LipcertError):
    """A model file or object could not be read as a network."""


class UnreadableCertificate(LipcertError):
    """A file is not a certificate, or is damaged."""


class UnreadableResults(LipcertError):
    """A file does not hold the results of a campaign, is damaged, or is about something else."""


class CampaignStopped(LipcertError):
    """A campaign ended before it was done; what it has found is stored."""


class ProofFailed(LipcertError):
    """No bound could be established; there is no number to return."""


class Interrupted(KeyboardInterrupt):
    """An interrupt (Ctrl-C) during a question; it carries the best answer that was proved before it.

    Attributes
    ----------
    best : the answer, of the type that the question returns, or None if there was none yet.
    """

    def __init__(self, best: object = None) -> None:
        super().__init__("interrupted; .best has the best answer so far" if best is not None else "interrupted")
        self.best = best
