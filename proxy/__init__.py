"""The proxy: harness dialects on one side, a model's own tokens on the other.

A harness speaks its native API with a trial's token. Each call is rendered (`families`),
made durable as an intent (`spool`), sampled (`calls`), parsed, made durable as an answer and
only then sent (`app`, `reply`). Later turns extend the exact tokens of earlier ones (`chains`).
A seal ends a trial and hands its segment to the gateway (`sealing`).
"""
