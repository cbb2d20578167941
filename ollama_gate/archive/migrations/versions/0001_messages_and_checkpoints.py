"""Messages, the conversations that hold them, and checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "gate_conversation",
        sa.Column("id", ID, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("kept_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("gate_conversation_kept_at", "gate_conversation", ["kept_at"])
    op.create_table(
        "gate_message",
        sa.Column("hash", sa.LargeBinary(32), primary_key=True),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )
    op.create_index("gate_message_stored_at", "gate_message", ["stored_at", "hash"])
    op.create_index("gate_message_stored", "gate_message", ["stored"])
    op.create_table(
        "gate_occurrence",
        sa.Column("conversation_id", ID, sa.ForeignKey("gate_conversation.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("hash", sa.LargeBinary(32), sa.ForeignKey("gate_message.hash"), primary_key=True),
        sa.Column("position", sa.Integer(), nullable=False),
    )
    op.create_index("gate_occurrence_hash", "gate_occurrence", ["hash"])
    op.create_table(
        "gate_checkpoint",
        sa.Column("conversation_id", ID, sa.ForeignKey("gate_conversation.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("model", sa.String(200), primary_key=True),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    """Take the tables away, and all that is in them."""
    for table in ("gate_checkpoint", "gate_occurrence", "gate_message", "gate_conversation"):
        op.drop_table(table)
