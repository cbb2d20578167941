"""What the operator decides: `ollama-gate.toml` and OLLAMA_GATE_* variables, read into one frozen `Config`."""

from ollama_gate.config.address import Address
from ollama_gate.config.loading import find, load
from ollama_gate.config.model import Config, ModelKeys, ModelPolicy
from ollama_gate.config.problems import InvalidConfig, Problem

__all__ = ["Address", "Config", "InvalidConfig", "ModelKeys", "ModelPolicy", "Problem", "find", "load"]
