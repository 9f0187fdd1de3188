"""Answers: bundles of facts that the kernel proved, with the hints that prove them again. Not trusted."""
