"""Construction plans: their versions, the steps that move them, and what may be spent under them.

`steps` holds the transactions, `checks` what each record must satisfy, `history` what was
recorded, `spending` what runs have spent and may spend, `reading` the record as it is read.
Every write locks the construction first, so that two approvals or two probes cannot both pass.
"""
