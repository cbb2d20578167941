import base64
from collections.abc import Mapping

import pytest

from ollama_gate.dialects.openai_audio import TranscriptionWriter, parse
from ollama_gate.errors import Refused
from ollama_gate.requests import Kind

SOUND = base64.b64encode(b"RIFF....WAVE").decode()


def test_sound_becomes_a_native_chat_below_a_fixed_instruction() -> None:
    fields = {"model": "m", "language": "Norwegian", "prompt": "names of rivers"}
    request = parse({**fields, "file": SOUND}, {"x-ollama-gate-keep-alive": "60"})
    assert request.kind is Kind.CHAT
    assert not request.stream
    system, user = request.body["messages"]
    assert system["content"].endswith("in the audio. The audio is in Norwegian. Context: names of rivers")
    assert user["images"] == [SOUND]
    assert request.body["options"] == {"temperature": 0}
    assert request.body["keep_alive"] == 60


@pytest.mark.parametrize(
    ("fields", "audio", "words"),
    [
        ({}, SOUND, "model is required"),
        ({"model": "m"}, None, "file is required"),
        ({"model": "m"}, "", "audio file is empty"),
    ],
)
def test_what_is_missing_is_told_in_ollamas_words(fields: Mapping[str, str], audio: str | None, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        parse({**fields, "file": audio}, {})
    assert caught.value.refusal.status == 400


def test_the_words_come_as_json_or_bare() -> None:
    answer = {"message": {"role": "assistant", "content": " Good <day>.\n"}, "done": True}
    as_json, bare = TranscriptionWriter("verbose_json"), TranscriptionWriter("text")
    assert as_json.whole(answer) == b'{"text":"Good \\u003cday\\u003e."}\n'
    assert as_json.whole_headers["Content-Type"] == "application/json"
    assert bare.whole(answer) == b"Good <day>."
    assert bare.whole_headers["Content-Type"] == "text/plain"
