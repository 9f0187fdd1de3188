"""Reports: one HTML page from saved answers and the results of campaigns."""

from lipcert.show.report.writing import write

__all__ = ["write"]
