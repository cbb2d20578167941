"""ollama-gate: a guard in front of Ollama that never lets a prompt be cut silently."""

__version__ = "0.1.0"
