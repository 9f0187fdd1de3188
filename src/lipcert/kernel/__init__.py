"""The trusted base: every bound proved in real arithmetic, with outward rounding.

What is here imports numpy, scipy's linear algebra and special functions, the model and the errors; no optimiser and no
method. Whatever hints and guides say, what is proved from them holds. It alone issues verified certificates.
"""
