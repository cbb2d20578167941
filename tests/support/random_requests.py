"""Native requests at random, for comparing counts: one seed makes the same requests everywhere.

They reach for what makes two renderings or two tokenizers differ: special tokens and template syntax in texts, runs of
white space, joined emoji, broken surrogates, escapes, roles in any order, odd numbers in arguments, schemas that
Ollama keeps only in part.
"""

import random
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

Json = dict[str, Any]

_WORDS: Final = (
    "the ferry came in and lantern keeper wrote ledger naïve Straße 漢字かな交じり文 Привет مرحبا สวัสดี हिन्दी 안녕 "
    "def return </div> https://example.org/a?b=c&d=e 3.14159 2026-11-30T16:15:00Z don't I'LL "
    "550e8400-e29b-41d4-a716-446655440000"
)
_SPECIALS: Final = (
    "<|im_start|> <|im_end|> </s> <s> <bos> <eos> <start_of_turn> <end_of_turn> <|eot_id|> <|endoftext|> <|end|> <pad> "
    "<|start_header_id|> <|channel|> <|message|> <think> </think> <think>\n</think> <tool_call> <|fim_prefix|> [INST] "
    "[img] [img-0] <unused7> <0x41> ▁ <|turn> <turn|> [TOOL_CALLS] {{.Content}} {%-raw%} {{'x'}} %s %!d <__media__>"
)
_ODD: Final = (
    "\u2028",
    "\u2029",
    "\x00",
    "\x07\x1b",
    "\x7f",
    "\x85",
    "\u200b\u200d\ufeff",
    "\ud800",
    "\udfff",
    "👩\u200d👩\u200d👧\u200d👦",
    "🏴\U000e0067\U000e0062\U000e007f",
    "e\u0301\u0323",
    "\u1112\u1161\u11ab",
    "ﷺ",
    "𝔘𝔫𝔦",
    "\\u003c\\n\\",
    "\"'`",
    "<&>",
)
_NUMBERS: Final = (
    *(0, 1, -1, 7.0, 1.5, -0.0, 1e21, 1e20, 123456789012345680000, 12345678901234567890, 2**63, -(2**63), 1e-7, 1e-5),
    *(0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 1e16, 2**53 + 1, 100000.0, 1234567.5, 10**400),
)
_TEMPLATES: Final = (
    "{{ .System }}|{{ .Prompt }}",
    "{{ .Prompt }}",
    "<bos>{{ range .Messages }}{{ .Role }}: {{ json . }}\n{{ end }}",
    "{{ .Tools }}{{ .Nothing }}{{ .ThinkLevel }}{{ .Response }}",
    "{{ if }}",
)
_SCHEMA_TYPES: Final = ("string", "integer", "number", "boolean", "object", "array", "null", "")


class Requests:
    """Makes requests for one model."""

    def __init__(self, seed: object, capabilities: Collection[str]) -> None:
        """Begin anew: the same seed gives the same requests.

        Args:
            seed: anything with a text of its own.
            capabilities: as `/api/show` tells them; requests use no other, but once in a while.
        """
        self._rng = random.Random(str(seed))
        self._capabilities = capabilities

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Route and body, without the model, for ever."""
        while True:
            if "embedding" in self._capabilities:
                yield "/api/embed", self._embed()
            else:
                yield ("/api/chat", self._chat()) if self._often(0.66) else ("/api/generate", self._generate())

    # --- choices

    def _often(self, share: float) -> bool:
        return self._rng.random() < share

    def _some(self, make: Callable[[], Any], most: int) -> list[Any]:
        return [make() for _ in range(self._rng.randint(0, most))]

    def _maybe(self, share: float, **fields: Callable[[], Any]) -> Json:
        """Each field or not."""
        return {name: make() for name, make in fields.items() if self._often(share)}

    def _one(self, choices: Any) -> Any:
        return self._rng.choice(choices)

    # --- texts

    def text(self) -> str:
        """A text of some pieces; now and then an empty or a monotonous one."""
        if self._often(0.06):
            return ""
        if self._often(0.04):
            return str(self._one("a🏽=漢\t0-\u0301\x00")) * self._rng.randint(50, 400)
        return "".join(self._piece() for _ in range(self._rng.choice((1, 2, 4, 8, 16))))

    def _piece(self) -> str:
        kind = self._rng.random()
        if kind < 0.55:
            return str(self._one(_WORDS.split())) + str(self._one((" ", " ", " ", ", ", ".\n", "", "\n\n")))
        if kind < 0.7:
            return str(self._one(_SPECIALS.split(" ")))
        if kind < 0.82:
            return str(self._one(_ODD))
        if kind < 0.92:
            return str(self._one((" ", "\n", "\t", "\r\n", " \n", "\u3000", "\xa0"))) * self._rng.randint(1, 20)
        if kind < 0.96:
            return str(self._rng.getrandbits(self._rng.choice((8, 64, 200))))
        return "".join(chr(self._rng.randrange(0x20, self._rng.choice((0x2FF, 0x10000)))) for _ in range(5))

    def _name(self) -> str:
        return str(self._one(("get_weather", "f", "a.b-c d", "Ünïcode", "", "1st", "python", "look_up")))

    # --- chats

    def _chat(self) -> Json:
        body: Json = {"messages": self._messages()}
        if "tools" in self._capabilities and self._often(0.5):
            body["tools"] = self._one((self._some(self._tool, 3), None)) if self._often(0.9) else []
        return body | self._either_way()

    def _either_way(self) -> Json:
        """What both routes take."""
        body = self._maybe(0.1, format=lambda: self._one(("json", "", None, {"type": "object"})))
        if "thinking" in self._capabilities and self._often(0.6):
            body["think"] = self._one((True, False, None, "low", "medium", "high", "max"))
        return body | self._maybe(0.05, think=lambda: self._one((False, None)))

    def _messages(self) -> list[Json]:
        if self._often(0.03):
            return []
        said: list[Json] = []
        if self._often(0.4):
            said.append({"role": "system", "content": self.text()})
        for _ in range(self._rng.choice((1, 1, 2, 3, 5))):
            if self._often(0.75):
                said += self._turn()
            else:
                said.append(self._any_message())
        if self._often(0.7):
            said.append({"role": "user", "content": self.text()})
        return said

    def _turn(self) -> list[Json]:
        asked: list[Json] = [{"role": "user", "content": self.text()}]
        if self._often(0.4):
            calls = [self._call() for _ in range(self._rng.randint(1, 3))]
            asked.append({"role": "assistant", "content": self._one(("", "", self.text(), None)), "tool_calls": calls})
            for call in calls:
                result = {"role": "tool", "content": self.text()}
                if self._often(0.6):
                    result["tool_name"] = call["function"]["name"]
                asked.append(result | self._maybe(0.6, tool_call_id=lambda: "call_1"))
        answer = {"role": "assistant", "content": self.text()}
        return [*asked, answer | self._maybe(0.25, thinking=self.text)]

    def _any_message(self) -> Json:
        """A message that a careful client would not send."""
        roles = ("system", "user", "assistant", "tool", "developer", "User", "ASSISTANT", "", "critic", "ipython")
        return {
            **self._maybe(0.95, role=lambda: self._one(roles)),
            **self._maybe(0.9, content=lambda: self._one((self.text(), self.text(), None, ""))),
            **self._maybe(
                0.2,
                thinking=self.text,
                images=lambda: self._one(([], None)),
                tool_calls=lambda: self._one((self._some(self._call, 2), None)),
                tool_name=self._name,
                tool_call_id=lambda: "call_9",
                name=self._name,
                unknown=lambda: {"a": 1},
            ),
        }

    def _call(self) -> Json:
        function = {"name": self._name(), **self._maybe(0.85, arguments=self._arguments)}
        function |= self._maybe(0.2, index=lambda: self._rng.randint(-1, 3))
        return {"function": function, **self._maybe(0.6, id=lambda: "call_1", type=lambda: "function")}

    def _arguments(self) -> Json | None:
        if self._often(0.1):
            return None
        return {self._key(): self._value(2) for _ in range(self._rng.randint(0, 4))}

    def _key(self) -> str:
        return str(self._one(("city", "b", "a", "Z", "é", "<k>", "\u2028", "a b", "\b\f", "")))

    def _value(self, depth: int) -> Any:
        """Any JSON; numbers beyond a double are rare, because they make the whole request a wrong one."""
        kind = self._rng.randrange(8 if depth else 5)
        if kind == 0:
            return self._one((None, True, False))
        if kind in (1, 2):
            return self._one(_NUMBERS if self._often(0.01) else _NUMBERS[:-1])
        if kind in (3, 4):
            return self.text()
        if kind == 5:
            return [self._value(depth - 1) for _ in range(self._rng.randint(0, 3))]
        return {self._key(): self._value(depth - 1) for _ in range(self._rng.randint(0, 3))}

    # --- tools

    def _tool(self) -> Json:
        function: Json = {"name": self._name(), **self._maybe(0.8, description=self.text)}
        function |= self._maybe(0.1, strict=lambda: True) | self._maybe(0.93, parameters=self._parameters)
        return {"type": "function", "function": function, **self._maybe(0.05, items=lambda: self._value(1))}

    def _parameters(self) -> Json:
        return {
            **self._maybe(0.95, type=lambda: "object", properties=lambda: self._properties(2)),
            **self._maybe(0.5, required=lambda: self._some(self._key, 2)),
            **self._maybe(0.15, **{"$defs": lambda: self._value(2), "items": lambda: self._value(1)}),
            **self._maybe(0.2, additionalProperties=lambda: False, title=self.text, **{"$schema": self.text}),
        }

    def _properties(self, depth: int) -> Json:
        return {self._key(): self._property(depth) for _ in range(self._rng.randint(0, 3))}

    def _property(self, depth: int) -> Json:
        def of_type() -> Any:
            kinds = [self._one(_SCHEMA_TYPES[:7]) for _ in range(self._rng.randint(0, 3))]
            return self._one((self._one(_SCHEMA_TYPES), self._one(_SCHEMA_TYPES), kinds, None))

        deeper = depth > 0
        return {
            **self._maybe(0.9, type=of_type),
            **self._maybe(0.6, description=self.text),
            **self._maybe(0.2, enum=lambda: self._some(lambda: self._value(1), 3), items=lambda: self._value(2)),
            **self._maybe(0.2 * deeper, anyOf=lambda: self._some(lambda: self._property(depth - 1), 2)),
            **self._maybe(0.25 * deeper, properties=lambda: self._properties(depth - 1)),
            **self._maybe(0.15, required=lambda: self._some(self._key, 2), default=lambda: self._value(1)),
            **self._maybe(0.1, format=lambda: "uri", title=self.text, minimum=lambda: 0, **{"$ref": self.text}),
        }

    # --- the other routes

    def _generate(self) -> Json:
        body: Json = {"prompt": self.text()}
        way = self._rng.random()
        if way < 0.2:
            return body | {"raw": True} | self._maybe(0.1, system=self.text)
        if way < 0.35:
            body["template"] = self._one(_TEMPLATES)
        if "insert" in self._capabilities and self._often(0.5):
            body["suffix"] = self.text()
        body |= self._maybe(0.3, system=self.text)
        body |= self._maybe(0.1, images=lambda: self._one(([], None)), messages=lambda: [{"role": "user"}])
        body |= self._maybe(0.15, context=lambda: self._some(lambda: self._rng.randrange(4, 200000), 8))
        return body | self._either_way()

    def _embed(self) -> Json:
        texts = [self.text() for _ in range(self._rng.randint(1, 4))]
        return {"input": texts if self._often(0.6) else texts[0]}
