"""The gateway and compute of the learning tests: lineage is read from real runs."""

from tests.runtime.learning.conftest import running, template

__all__ = ["running", "template"]
