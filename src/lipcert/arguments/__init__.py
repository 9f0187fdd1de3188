"""What users hand in, read into numbers and names, and what is printed of it. No proof rests on this.

A network or region is data once it is built; a proof is about that data. Whoever builds it from something else, be it
this package or an importer, may be wrong about what was meant, but not make a bound wrong for what was built.
"""
