"""Model specifications at work: read, rendered for a harness, and compared with training rows.

`reading` seals a specification, `render` makes profiles of it, and `check` says where rows do
not fit the deployed model. Everything but `reading` is pure.
"""
