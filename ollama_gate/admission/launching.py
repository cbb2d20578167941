"""How Ollama launches a model, and within which limit: the configuration as the memory arithmetic takes it."""

from ollama_gate.admission.holdings import MemoryPolicy, OnFull
from ollama_gate.admission.memory import LaunchPlan
from ollama_gate.config import Config


def launch_plan(config: Config, num_ctx: int, num_batch: int | None, draft_tokens: int, *, gpus: int) -> LaunchPlan:
    """How Ollama launches a model by all that the configuration says of it.

    Args:
        config: what is known of the Ollama service.
        num_ctx: the model's window.
        num_batch: the model's batch, where one is set.
        draft_tokens: what it drafts ahead by itself.
        gpus: GPUs that it is spread over.
    """
    upstream, memory = config.upstream, config.memory
    return LaunchPlan(
        num_ctx=num_ctx,
        num_parallel=upstream.num_parallel,
        kv_cache_type=upstream.kv_cache_type,
        num_batch=num_batch,
        swa_full=upstream.swa_full,
        draft_tokens=draft_tokens,
        flash_attention=upstream.flash_attention,
        host_cache=memory.host_cache_per_model,
        checkpoints=memory.checkpoints,
        gpus=gpus,
    )


def memory_policy(config: Config, *, machine: int, gpus: int) -> MemoryPolicy:
    """The memory section as the ledger takes it.

    Args:
        config: A limit of "auto" there is what the machine has, less the reserve.
        machine: Bytes that the machine has.
        gpus: GPUs in use; without one the models lie in host memory, and that counts.
    """
    memory = config.memory
    limit = max(machine - memory.reserve, 0) if memory.limit == "auto" else memory.limit
    counts_host = not gpus if memory.counts_host == "auto" else memory.counts_host
    return MemoryPolicy(limit=limit, on_full=OnFull(memory.on_full), counts_host=counts_host)
