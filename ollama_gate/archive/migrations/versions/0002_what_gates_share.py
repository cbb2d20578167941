"""Keys, what they have used, and what was learned of models: what gates share."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "gate_key",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "gate_run",
        sa.Column("run", sa.String(32), primary_key=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "gate_usage",
        sa.Column("run", sa.String(32), primary_key=True),
        sa.Column("quota", sa.String(32), primary_key=True),
        sa.Column("slot", sa.BigInteger(), primary_key=True),
        sa.Column("key_id", sa.String(16), primary_key=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
    )
    op.create_index("gate_usage_version", "gate_usage", ["run", "version"])
    op.create_index("gate_usage_slot", "gate_usage", ["quota", "slot"])
    op.create_table(
        "gate_learned",
        sa.Column("model", sa.String(200), primary_key=True),
        sa.Column("gate", sa.String(32), primary_key=True),
        sa.Column("learned_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    """Take the tables away, and all that is in them."""
    for table in ("gate_learned", "gate_usage", "gate_run", "gate_key"):
        op.drop_table(table)
