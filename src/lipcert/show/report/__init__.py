"""Reports: one HTML page from certificates, the results of a campaign, or a run of ``lipcert reproduce``."""

from lipcert.show.report.writing import Written, write

__all__ = ["Written", "write"]
