"""What Alembic runs for each command: the migrations, on the connection and in the transaction that it was given."""

from alembic import context

from ollama_gate.archive.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
