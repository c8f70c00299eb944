"""The control plane: identity, admission, claims, events, reads, grants.

`routes` speak HTTP and nothing else; the other modules are transactions (plain functions of
a connection) and what they share. `python -P -m runtime.gateway --home DIR` serves one home.
"""
