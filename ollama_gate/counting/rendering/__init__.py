"""Prompts as text, byte for byte as Ollama renders them: Go templates and jinja."""
