"""The gate's side towards Ollama: sending, and handing the answer on."""
