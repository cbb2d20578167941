"""The keys of [compaction]."""

from ollama_gate.config.keys import Duration, Name, Names, Section, Size, key

_MIB = 1024**2


class Compaction(Section):
    """How conversations are compacted, for the models that have `compaction = true`."""

    keep_last: int = key(
        8,
        "So many messages at the end of a conversation stay, cut inside at most.",
        unit="messages",
        ge=1,
        le=1000,
    )
    target: float = key(
        0.55,
        "Share of the budget that a conversation takes after a compaction, more only before a tool's result would be "
        "given up. What is left is for the next turns, which all begin with the same compacted messages, so that "
        "Ollama's prompt cache keeps working.",
        unit="share",
        ge=0.1,
        le=0.95,
    )
    deadline: Duration = key(
        4.0,
        "Longest time for one compaction, counting included; then the request is refused as without compaction. "
        "Loading the model, where its prompts cannot be counted without, and waiting for other compactions are not "
        "included.",
        unit="time",
        ge=0.1,
        le=120.0,
    )
    memory: Size = key(
        512 * _MIB, "Memory of the process that works it out; it ends when it takes more.", unit="size", ge=128 * _MIB
    )
    max_input: Size = key(
        4 * _MIB,
        "Largest conversation that is compacted, in bytes of its body without pictures; a larger one is refused.",
        unit="size",
        le=16 * _MIB,
    )
    embed_model: Name | None = key(
        None,
        "An embedding model that Ollama has. With it the digest's excerpts are chosen by meaning too, not by words "
        "alone. It is loaded like any other model: leave memory for it.",
        example="all-minilm",
    )
    exempt_roles: Names = key(
        (),
        "Roles whose messages are never cut or dropped, besides `system`.",
        example=["developer"],
    )
    exempt_tools: Names = key(
        (),
        "Tools whose results are never cut.",
        example=["read_skill"],
    )
