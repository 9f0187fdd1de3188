"""The machine: threads, memory, time limits, progress."""
