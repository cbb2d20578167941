"""The wire APIs that clients speak, each translated to and from Ollama's native one."""
