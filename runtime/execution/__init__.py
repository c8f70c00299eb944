"""Execution: runs trials in isolated environments and records what each one did."""
