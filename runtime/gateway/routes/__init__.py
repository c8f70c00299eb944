"""HTTP, one module per noun: `docs/protocols.md` lists every route."""

from fastapi import APIRouter

from runtime.gateway.routes import (
    events,
    health,
    models,
    objects,
    operations,
    proxy,
    published,
    records,
    runs,
    sessions,
    worker,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    models.router,
    published.router,
    runs.router,
    operations.router,
    events.router,
    records.router,
    objects.router,
    sessions.router,
    worker.router,
    proxy.router,
)
