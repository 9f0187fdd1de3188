"""For people: wording, plots, the report."""
