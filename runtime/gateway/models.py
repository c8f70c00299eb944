"""Models that are known: what compute last said of each."""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import references
from runtime.storage.tables import models
from specs.model import ModelInfo
from specs.operator_api import ModelList


def known(connection: Connection, org: str) -> ModelList:
    """Every model, by name."""
    query = sa.select(models.c.document).where(models.c.org_id == org).order_by(models.c.name)
    rows = connection.execute(query).scalars()
    return ModelList(models=[ModelInfo.model_validate_json(document) for document in rows])


def find(connection: Connection, org: str, name: str) -> ModelInfo | None:
    """One model; None when it is not known."""
    query = sa.select(models.c.document).where(models.c.org_id == org, models.c.name == name)
    document = connection.execute(query).scalar()
    return None if document is None else ModelInfo.model_validate_json(document)


def merge(connection: Connection, org: str, given: ModelList) -> ModelList:
    """Take in what is said of some models; the others stay as they are."""
    names = [model.name for model in given.models]
    connection.execute(sa.delete(models).where(models.c.org_id == org, models.c.name.in_(names)))
    latest = {model.name: model for model in given.models}
    for model in latest.values():
        connection.execute(
            sa.insert(models).values(org_id=org, name=model.name, document=model.model_dump_json())
        )
    tokenizers = {model.tokenizer_digest for model in latest.values()}
    references.hold_present(connection, org, "models", tokenizers)
    return known(connection, org)
