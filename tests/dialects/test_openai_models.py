import orjson
import pytest

from ollama_gate.dialects.openai_models import model_object, models_list


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("llama3.2:1b", "library"),
        ("me/llama3.2:1b", "me"),
        ("hf.co/author/model:Q4_K_M", "author"),
        ("registry.example.org:5000/team/model", "team"),
        ("/model", "library"),
    ],
)
def test_names_with_slashes_keep_them_and_tell_their_owner(name: str, owner: str) -> None:
    model = orjson.loads(model_object(name, {"modified_at": "2026-11-30T08:00:26.923650675+01:00"}))
    assert model == {"id": name, "object": "model", "created": 1796022026, "owned_by": owner}


def test_no_models_are_an_empty_list_and_not_null() -> None:
    assert models_list({"models": []}) == models_list({"models": None}) == b'{"object":"list","data":[]}\n'


def test_odd_entries_are_passed_over() -> None:
    listed = orjson.loads(models_list({"models": [None, {"name": "a:latest", "modified_at": "yesterday"}]}))
    assert listed["data"] == [{"id": "a:latest", "object": "model", "created": 0, "owned_by": "library"}]
