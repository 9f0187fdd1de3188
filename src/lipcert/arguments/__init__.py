"""What users hand in, read into numbers and names; values in floating point; what is printed. No proof runs any of it.

A network or region is data once it is built; a proof is about that data, and a test sees that ``verify`` of no answer
enters a function from here. Whoever builds it, be it this package or an importer, may be wrong about what was
meant, but not make a bound wrong for what was built.
"""
