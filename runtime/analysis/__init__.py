"""What people ask of records: where a model came from, and the page that shows a run.

Everything here is derived from what the gateway's clients read, changes nothing, and needs
neither compute nor the database, so that tools and the gateway show the same.
"""
