"""The decision service: durable decisions and rewards, independent of HTTP.

`deniable.open(url)` returns a `Deniable`; the HTTP routes call its methods.
"""
