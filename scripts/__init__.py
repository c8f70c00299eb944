"""Pipelines of `practicum` commands, each started by a target of the Makefile."""
