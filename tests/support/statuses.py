"""What a gate whose Ollama is away, and whose archive is full, tells at the head of /gate/status."""

from typing import Any

HEAD: dict[str, Any] = {
    "version": "1.0",
    "uptime_seconds": 4000,
    "upstream": {"up": False, "url": "http://x", "version": "0.33.1", "warning": None},
    "memory": {"held": 3 * 2**30, "limit": 2 * 2**30},
    "alerts": [{"level": "error", "about": "archive", "what": "the disk is full", "page": "docs/archive.md"}],
}
