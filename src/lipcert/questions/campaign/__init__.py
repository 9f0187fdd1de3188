"""Campaigns: many points × radii × methods, on many workers, into one SQLite file that can be resumed."""

from lipcert.questions.campaign.data import Points, read_points
from lipcert.questions.campaign.results import Results, Summary, summarise
from lipcert.questions.campaign.run import campaign
from lipcert.questions.campaign.store import Row

__all__ = ["Points", "Results", "Row", "Summary", "campaign", "read_points", "summarise"]
