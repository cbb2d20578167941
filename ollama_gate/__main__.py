"""The command `ollama-gate`; also `python -m ollama_gate`."""

from ollama_gate.cli import main

if __name__ == "__main__":
    main()
