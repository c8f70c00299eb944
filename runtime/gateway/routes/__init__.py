"""HTTP, one module per noun: `docs/protocols.md` lists every route."""

from fastapi import APIRouter

from runtime.gateway.routes import (
    comparisons,
    constructions,
    events,
    health,
    lineage,
    models,
    objects,
    operations,
    proxy,
    published,
    records,
    runs,
    sessions,
    ui,
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
    lineage.router,
    comparisons.router,
    constructions.router,
    objects.router,
    sessions.router,
    ui.router,
    worker.router,
    proxy.router,
)
