"""Ollama's Go templates, rendered byte for byte.

Go's text/template with exactly the values that Ollama hands to a chat template: lexer, parser and executor follow Go's
own, `values`, `gojson` and `gofmt` hold the rules of its types, and `ollama` what Ollama puts in.
"""

from ollama_gate.counting.rendering.gotemplate.era import Era
from ollama_gate.counting.rendering.gotemplate.template import GoTemplate

__all__ = ["Era", "GoTemplate"]
