"""The tables, as SQLAlchemy sees them. Migrations make them (`migrations/versions`); a test holds the two together.

A message is stored once, under the hash of its content, however many conversations hold it; an occurrence says that a
conversation does. Age is the conversation's: it goes with everything that no younger one holds. Times are
microseconds since 1970, sizes bytes.

Beside them stands what gates share (`ollama_gate.shared`), in the same database whether or not messages are kept.
"""

from hashlib import blake2b
from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table

REVISION: Final = "0002"
"""The newest migration: what the tables have to be at for this version of the gate."""

VERSION_TABLE: Final = "gate_revision"

SECOND: Final = 1_000_000
"""Of the unit that times are stored in."""
HASH_BYTES: Final = 32
LONGEST_NAME: Final = 200
"""Characters of a conversation's or a model's name."""
LONGEST_ROLE: Final = 32

metadata: Final = MetaData()


def storable(name: str, longest: int = LONGEST_NAME) -> str:
    """A name as it is stored: itself where it is printable and not too long, else a hash of it.

    Args:
        name: of a conversation or a model, or a role: any text that a client sent.
        longest: characters that its column takes.
    """
    if len(name) <= longest and name.isprintable():
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"blake2b:{digest}"


Id = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the key is an INTEGER."""

conversation: Final = Table(
    "gate_conversation",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", String(LONGEST_NAME), nullable=False, unique=True),
    Column("model", String(LONGEST_NAME), nullable=False),
    Column("kept_at", BigInteger, nullable=False),
    Index("gate_conversation_kept_at", "kept_at"),
)

message: Final = Table(
    "gate_message",
    metadata,
    Column("hash", LargeBinary(HASH_BYTES), primary_key=True),
    Column("role", String(LONGEST_ROLE), nullable=False),
    Column("stored_at", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("gate_message_stored_at", "stored_at", "hash"),
    Index("gate_message_stored", "stored"),
)
"""`size` is the body's, `stored` what it takes compressed, as `data` is (zstd)."""

occurrence: Final = Table(
    "gate_occurrence",
    metadata,
    Column("conversation_id", Id, ForeignKey(conversation.c.id, ondelete="CASCADE"), primary_key=True),
    Column("hash", LargeBinary(HASH_BYTES), ForeignKey(message.c.hash), primary_key=True),
    Column("position", Integer, nullable=False),
    Index("gate_occurrence_hash", "hash"),
)
"""`position` rises with a message's place in its conversation.

The foreign key is what makes purging safe beside another gate: a message that was just found to be there already
cannot vanish under the conversation that counts on it.
"""

checkpoint: Final = Table(
    "gate_checkpoint",
    metadata,
    Column("conversation_id", Id, ForeignKey(conversation.c.id, ondelete="CASCADE"), primary_key=True),
    Column("model", String(LONGEST_NAME), primary_key=True),
    Column("made_at", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""The last one of a conversation with a model. `data` is compressed (zstd)."""

LONGEST_RUN: Final = 32

key: Final = Table(
    "gate_key",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""One key each, as the file of keys has it. `revision` rises with every change to any of them."""

run: Final = Table(
    "gate_run",
    metadata,
    Column("run", String(LONGEST_RUN), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("told_at", BigInteger, nullable=False),
)
"""Gates from their start to their end, and the number of what each wrote last."""

usage: Final = Table(
    "gate_usage",
    metadata,
    Column("run", String(LONGEST_RUN), primary_key=True),
    Column("quota", String(32), primary_key=True),
    Column("slot", BigInteger, primary_key=True),
    Column("key_id", String(16), primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Index("gate_usage_version", "run", "version"),
    Index("gate_usage_slot", "quota", "slot"),
)
"""What each run booked on a key's quota in a slot of time; only that run writes it, and always the whole amount."""

learned: Final = Table(
    "gate_learned",
    metadata,
    Column("model", String(LONGEST_NAME), primary_key=True),
    Column("gate", String(32), primary_key=True),
    Column("learned_at", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""What gates of one version learned of a model (its digest, mode and Ollama's version)."""
