"""Serving the application on a Unix socket of the proxy's own, mode 0600."""

import uvicorn

from proxy.app import Settings, create_app

LOCK_WAIT_SEC = 10.0
SHUTDOWN_SEC = 5


def server(settings: Settings) -> uvicorn.Server:
    """A server of the proxy; `serve(sockets=[listen(path)])` runs it until a signal."""
    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=SHUTDOWN_SEC,
    )
    return uvicorn.Server(config)
