"""Serving the application on a Unix socket of the proxy's own, mode 0600."""

import uvicorn

from proxy.app import Settings, create_app

LOCK_WAIT_SEC = 10.0
SHUTDOWN_SEC = 5


class Server(uvicorn.Server):
    """A server of the proxy; `serve(sockets=[listen(path)])` runs it until a signal.

    It ends as well once the parts behind it have failed: it would go on answering, and nobody
    would start them again.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(settings, self._fail),
                log_config=None,
                access_log=False,
                lifespan="on",
                ws="none",
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=SHUTDOWN_SEC,
            )
        )
        self.failed = False
        """Whether its parts have."""

    def _fail(self) -> None:
        self.failed = self.should_exit = True
