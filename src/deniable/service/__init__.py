"""The decision service: decide and reward as durable use-cases, without HTTP.

`deniable.open(url)` gives a `Deniable`; the HTTP routes call exactly its methods.
"""
