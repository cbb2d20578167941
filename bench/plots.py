"""The plots of the documentation, drawn from the code's own arithmetic and from a recorded conversation.

python -m bench.plots             draws them into docs/plots
python -m bench.plots --record    has the conversation again first, with a gate in front of the rehearsal
"""

import asyncio
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import click

from bench.svg import Chart, Line
from ollama_gate.admission.memory import LaunchPlan, footprint
from ollama_gate.admission.shapes import shape_from_show
from ollama_gate.app import Gate
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config
from ollama_gate.observe import log
from ollama_gate.rehearsal import Model, Rehearsal, Settings
from ollama_gate.rehearsal.window import cut_middle

ROOT: Final = Path(__file__).parents[1]
PLOTS: Final = ROOT / "docs" / "plots"
RECORDED: Final = Path(__file__).parent / "conversation.json"
SEEN: Final = ((255, 255), (256, 131), (594, 131))
"""Tokens sent and tokens that reached the model, on a real Ollama (v0.33.0-rc2) with a window of 256."""
_WINDOW, _BUDGET, _TURNS = 8192, 6553, 36
_GIB: Final = 1024**3
_LLAMA_8B: Final = {
    "model_info": {
        "general.architecture": "llama",
        "llama.block_count": 32,
        "llama.embedding_length": 4096,
        "llama.feed_forward_length": 14336,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8,
        "llama.vocab_size": 128256,
        "llama.context_length": 131072,
    }
}
_WEIGHTS: Final = 4_920_738_944
"""Bytes of Llama 3.1 8B in Q4_K_M, the file that Ollama pulls."""


def cut() -> Chart:
    """What reaches the model of a prompt that is too long (`llm/llama_server.go:completionPromptForRequest`)."""
    window, keep = 256, 4
    lengths = (*range(0, window, 15), window - 1, window, *range(window + 44, 601, 100))
    reached = [(n, n if n < window else len(cut_middle(range(n), window, keep, adds_bos=True))) for n in lengths]
    return Chart(
        "One token too many costs half of the prompt",
        "tokens sent to Ollama, window 256; dots: seen on a real one",
        "tokens that reach the model",
        [Line("status 200", reached, SEEN)],
        range(0, 601, 100),
        range(0, 301, 50),
        [("the window", window)],
    )


def memory() -> Chart:
    """What Llama 3.1 8B takes by window and cache type."""
    shape = shape_from_show(_LLAMA_8B, _WEIGHTS)
    windows = (4096, *range(8192, 131073, 8192))
    lines = []
    for kind in ("f16", "q8_0", "q4_0"):
        launch = LaunchPlan(num_ctx=4096, num_parallel=1, kv_cache_type=kind)
        takes = [(n, footprint(shape, replace(launch, num_ctx=n)).loaded / _GIB) for n in windows]
        lines.append(Line(f'kv_cache_type "{kind}"', takes))
    return Chart(
        "What Llama 3.1 8B (Q4_K_M) takes, one slot",
        "num_ctx, tokens",
        "GiB, as the gate books it",
        lines,
        range(0, 131073, 16384),
        range(0, 25, 4),
    )


def fill() -> Chart:
    """A conversation that outgrows its window, three ways."""
    told = json.loads(RECORDED.read_text("utf-8"))
    turns = list(enumerate(told["sent"], 1))
    return Chart(
        f"A conversation in a window of {told['window']:,} tokens",
        "turns",
        "tokens of the prompt",
        [
            Line("the whole of it", turns),
            Line("straight to Ollama", list(enumerate(told["straight"], 1))),
            Line("gate, compaction on", list(enumerate(told["compacted"], 1))),
        ],
        range(0, len(turns) + 1, 6),
        range(0, 20001, 5000),
        [("the window", told["window"]), ("the budget", told["budget"])],
    )


CHARTS: Final = {"cut": cut, "memory": memory, "window-fill": fill}


async def conversation() -> dict[str, Any]:
    """Tokens of the prompt in each turn: sent, and what reached the model straight and through a gate that compacts."""
    model = Model("talk:latest", context_length=131_072, parameters={"num_ctx": _WINDOW})
    told: dict[str, Any] = {"window": _WINDOW, "budget": _BUDGET, "sent": [], "straight": [], "compacted": []}
    log.configure("error")
    with tempfile.TemporaryDirectory() as home:
        async with Rehearsal(Settings(models=(model,))) as ollama, aiohttp.ClientSession() as session:
            config = Config.model_validate(
                {
                    "server": {"listen": "127.0.0.1:0"},
                    "access": {"keys": f"{home}/keys.json"},
                    "upstream": {"url": ollama.url},
                    "counting": {"cache_dir": home},
                    "defaults": {"num_ctx": _WINDOW, "budget": _BUDGET, "compaction": True},
                }
            ).for_models(canonical)[0]
            gate = Gate(config)
            await gate.start()
            host, port = gate.address

            async def asked(url: str, messages: list[dict[str, str]]) -> dict[str, Any]:
                body = {"model": "talk", "stream": False, "messages": messages, "options": {"num_predict": 8}}
                async with session.post(url, json=body) as answer:
                    decoded: dict[str, Any] = await answer.json()
                    if answer.status != 200:
                        raise click.ClickException(f"{url} answers {answer.status}: {decoded}")
                    return decoded

            messages = [{"role": "system", "content": "You keep the log of the ferry."}]
            await asked(f"http://{host}:{port}/api/chat", [*messages, {"role": "user", "content": "Begin."}])
            for turn in range(_TURNS):
                messages.append({"role": "user", "content": f"Day {turn}. " + _day(turn)})
                whole = await asked(f"http://{host}:{port}/gate/count", messages)
                shorter = await asked(f"http://{host}:{port}/api/chat", messages)
                cut_down = await asked(f"{ollama.url}/api/chat", messages)
                told["sent"].append(whole["tokens"])
                told["compacted"].append(shorter["prompt_eval_count"])
                told["straight"].append(cut_down["prompt_eval_count"])
                messages.append({"role": "assistant", "content": f"Day {turn} is written down."})
            await gate.stop(drain=1.0)
    return told


def _day(turn: int) -> str:
    what = ("timber", "salt", "lamps", "wool", "grain", "letters", "tools")
    return " ".join(
        f"At {hour} the ferry brought {turn + hour} loads of {what[(turn * 5 + hour) % 7]} and took "
        f"{hour * 3 % 11} of {what[(turn + hour * 2) % 7]} to the other side."
        for hour in range(6, 22)
    )


@click.command()
@click.option("--record", is_flag=True, help="Have the conversation again.")
def main(*, record: bool) -> None:
    """Draw the plots of the documentation."""
    if record:
        RECORDED.write_text(json.dumps(asyncio.run(conversation())) + "\n", encoding="utf-8")
    PLOTS.mkdir(exist_ok=True)
    for name, chart in CHARTS.items():
        (PLOTS / f"{name}.svg").write_text(chart().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
