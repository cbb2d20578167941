"""The archive: messages of compacted conversations, and the checkpoints that replace them, in SQLite or PostgreSQL.

Nothing here is imported, and so nothing is paid, while the archive is switched off.
"""
