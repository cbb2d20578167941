"""Between bytes and JSON: request bodies in, upstream lines out. Pure; no sockets here."""
