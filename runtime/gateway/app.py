"""The application: one gateway over one home folder."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI

from runtime.gateway import problems, ui, uploads
from runtime.gateway.context import Gateway, Wakeups
from runtime.gateway.limits import BodyLimit
from runtime.gateway.routes import ROUTERS
from runtime.gateway.tokens import TokenSigner
from runtime.home import Home, Role
from runtime.storage import schema
from runtime.storage.database import SqliteDatabase
from runtime.storage.objects import FileObjectStore
from specs.construction_records import ApprovalRules

log = logging.getLogger(__name__)


def create_app(
    home: Home, wakeups: Wakeups | None = None, rules: ApprovalRules | None = None
) -> FastAPI:
    """The gateway of a home, which is created if need be.

    At start the database is migrated and what a crash left behind is swept; `database_newer`
    ends the start. At the end whoever waits is woken and begun transactions are committed.
    `wakeups` lets the caller end streams before the server drains; `rules` say what the gateway
    approves by itself.
    """
    hints = wakeups or Wakeups()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        home.create()
        await anyio.to_thread.run_sync(schema.upgrade, home.database)
        async with ui.running(home) as pages:
            gateway = Gateway(
                database=SqliteDatabase(home.database),
                objects=FileObjectStore(home.objects),
                signer=TokenSigner.load(home.signing_key),
                keys={role: home.key(role) for role in Role},
                ui=pages,
                rules=rules or ApprovalRules(),
                wakeups=hints,
            )
            app.state.gateway = gateway
            try:
                removed = await uploads.sweep(gateway.database, gateway.objects)
                if removed:
                    log.info("swept %d objects that nothing refers to", removed)
                yield
            finally:
                hints.stop()
                await gateway.database.close()

    app = FastAPI(
        title="Practicum gateway",
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    app.add_middleware(BodyLimit)
    for router in ROUTERS:
        app.include_router(router)
    return app
