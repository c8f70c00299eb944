"""HTTP clients of the gateway, one per role; see `docs/protocols.md`."""

from runtime.client.operator import OperatorClient, Verified
from runtime.client.paging import every
from runtime.client.proxy import ProxyClient
from runtime.client.remote import Remote, remote_gateway
from runtime.client.transport import Transport
from runtime.client.worker import WorkerClient

__all__ = [
    "OperatorClient",
    "ProxyClient",
    "Remote",
    "Transport",
    "Verified",
    "WorkerClient",
    "every",
    "remote_gateway",
]
