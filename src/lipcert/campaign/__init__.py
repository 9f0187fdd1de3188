"""Campaigns: many points × radii × methods, on many workers, into one SQLite file that can be resumed."""

from lipcert.campaign.data import Points, read_points
from lipcert.campaign.run import campaign
from lipcert.campaign.store import Results, Row
from lipcert.campaign.summary import Summary, summarise

__all__ = ["Points", "Results", "Row", "Summary", "campaign", "read_points", "summarise"]
