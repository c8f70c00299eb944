"""Run by Alembic: migrates over the connection that `runtime.storage.schema` hands in."""

from alembic import context

from runtime.storage.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    compare_server_default=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
