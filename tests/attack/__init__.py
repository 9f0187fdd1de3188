"""A search for wrong answers that never ends: random cases of many kinds, exact truths, counts.

``python -m attack --seconds 60`` with ``tests`` on the path, or ``make attack SECONDS=1800 SEED=7``. A case asks
lipcert for a number and compares it with one that is known in exact arithmetic; see :mod:`attack.truth`. Whatever
contradicts is printed with the command that repeats it, and the exit code is 1. An exception that is not lipcert's own
is a finding too.
"""
