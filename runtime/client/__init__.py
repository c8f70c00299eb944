"""HTTP clients of the gateway, one per role; see `docs/protocols.md`."""

from runtime.client.operator import OperatorClient, Verified
from runtime.client.proxy import ProxyClient
from runtime.client.transport import Transport
from runtime.client.worker import WorkerClient

__all__ = [
    "OperatorClient",
    "ProxyClient",
    "Transport",
    "Verified",
    "WorkerClient",
]
