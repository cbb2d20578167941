"""Long conversations as agents have them, made by rule: every run makes the same."""

import random
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

_WORDS = (
    "ferry lantern orchard ledger bridge kiln harbour compass granary loom keeper reader northern valve index shard "
    "replica deploy build parser buffer window margin signal carrier meadow quarrel timber anchor saddle"
)
FACTS = ("The vault code is QUARRY-5519.", "The courier is called Ottoline Vreeland.")
FACTS_QUESTION = "What is the vault code, and what is the courier called?"


def prose(seed: object, words: int) -> str:
    """So many words in sentences and lines."""
    rng, vocabulary = random.Random(str(seed)), _WORDS.split()
    said: list[str] = []
    for at in range(words):
        said.append(rng.choice(vocabulary))
        if at % 12 == 11:
            said[-1] += ".\n" if at % 36 == 35 else "."
    return " ".join(said).replace("\n ", "\n")


def system(words: int = 60) -> Message:
    """A system prompt."""
    return {"role": "system", "content": "You keep the books of the harbour. " + prose("system", words)}


def long_talk(messages: int = 122, words: int = 243, facts: Sequence[str] = FACTS) -> list[Message]:
    """A talk with facts said once, early on, one of them in the middle of a long answer; its question is about them."""
    talk = [system()]
    while len(talk) < messages - 1:
        at = len(talk)
        role = "user" if at % 2 else "assistant"
        talk.append({"role": role, "content": prose(at, words)})
    for at, fact in zip((messages // 8, messages // 3), facts, strict=False):
        said = talk[at]["content"]
        talk[at]["content"] = said[: len(said) // 2] + f"\n{fact}\n" + said[len(said) // 2 :]
    talk.append({"role": "user", "content": FACTS_QUESTION})
    return talk


def call(number: int | str, name: str, **arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"id": f"call_{number}", "function": {"index": 0, "name": name, "arguments": arguments}}


def result(number: int | str, name: str, content: str) -> Message:
    """What a call gave."""
    return {"role": "tool", "content": content, "tool_name": name, "tool_call_id": f"call_{number}"}


def rows(seed: object, count: int) -> str:
    """OHLCV data: a day, four prices and a volume in each line."""
    rng = random.Random(str(seed))
    price, lines = 100 * rng.random() + 20, ["date,open,high,low,close,volume"]
    for day in range(count):
        opened, price = price, price * rng.uniform(0.97, 1.03)
        high, low = max(opened, price) * 1.01, min(opened, price) * 0.99
        date = f"2026-{1 + day // 28 % 12:02d}-{1 + day % 28:02d}"
        lines.append(f"{date},{opened:.2f},{high:.2f},{low:.2f},{price:.2f},{rng.randint(10_000, 9_999_999)}")
    return "\n".join(lines)


def indicators(pairs: int = 40, lines: int = 40) -> list[Message]:
    """A loop over symbols: one question, then a call and its data again and again."""
    talk = [system(), {"role": "user", "content": "Look at every symbol in turn and tell me which one to buy."}]
    for number in range(pairs):
        called = call(number, "get_indicators", symbol=f"SYM{number}", interval="1d")
        talk.append({"role": "assistant", "content": "", "tool_calls": [called]})
        talk.append(result(number, "get_indicators", rows(number, lines)))
    return talk


def analyst(turns: int = 2, lines: int = 40) -> list[Message]:
    """Nine tools at once in each turn, their results in another order than their calls."""
    names = [f"get_{what}" for what in ("price", "news", "flows", "debt", "peers", "risk", "tax", "dates", "notes")]
    talk = [system(), {"role": "user", "content": "Compare the two companies and say which one is sounder."}]
    for turn in range(turns):
        calls = [call(f"{turn}_{at}", name, company=f"C{turn}") for at, name in enumerate(names)]
        talk.append({"role": "assistant", "content": f"I look at company {turn}.", "tool_calls": calls})
        order = list(range(len(names)))
        random.Random(turn).shuffle(order)
        talk += [result(f"{turn}_{at}", names[at], rows((turn, at), lines)) for at in order]
    return talk


def digits(messages: int = 30, lines: int = 60) -> list[Message]:
    """Nothing but numbers, in lines and without any."""
    talk = [system()]
    for at in range(messages):
        data = rows(at, lines)
        talk.append(
            {"role": "user" if at % 2 == 0 else "assistant", "content": data.replace("\n", " ") if at % 3 else data}
        )
    talk.append({"role": "user", "content": "Which close was the highest?"})
    return talk


def growing(turns: int, words: int) -> list[list[Message]]:
    """The requests of a conversation in which each turn says so many words and is answered in as many."""
    talk, requests = [system()], list[list[Message]]()
    for turn in range(turns):
        talk.append({"role": "user", "content": f"Turn {turn}: " + prose(("ask", turn), words)})
        requests.append([dict(message) for message in talk])
        talk.append({"role": "assistant", "content": prose(("answer", turn), words)})
    return requests
