"""What a model's description says of it, against recorded descriptions of a real Ollama."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.catalog.card import Mode, ModelCard, card_from_show
from support.recorded import recording


def shown(name: str) -> ModelCard:
    answer = json.loads("".join(recording(f"native-show-{name}").chunks))
    return card_from_show("registry.ollama.ai/library/x:latest", "x:latest", "d1", answer, size=7)


def card(**show: Any) -> ModelCard:
    return card_from_show("k", "n", "d", show)


def test_a_go_template_model_is_read() -> None:
    found = shown("gemma3-270m")
    assert (found.mode, found.architecture, found.trained) == (Mode.GO_TEMPLATE, "gemma3", 32768)
    assert "{{" in found.template
    assert found.capabilities == {"completion"}
    assert found.blob.startswith("/")
    assert "sha256-" in found.blob
    assert (found.key, found.name, found.digest, found.size) == (
        "registry.ollama.ai/library/x:latest",
        "x:latest",
        "d1",
        7,
    )
    assert not any(isinstance(value, list) for value in found.model_info.values())


def test_an_embedder_is_read() -> None:
    found = shown("all-minilm")
    assert found.embeds
    assert (found.trained, found.num_ctx) == (512, None)


def test_a_native_model_is_one_whose_template_is_none_of_ollamas() -> None:
    found = shown("gate-native-chatml")
    assert found.mode is Mode.JINJA
    assert "{%" in found.template


def test_a_built_in_renderer_is_found_in_the_modelfile() -> None:
    found = shown("gate-r-gemma4")
    assert found.mode is Mode.RENDERER
    assert found.renderer.startswith("gemma4")
    assert found.template == ""


def test_the_modelfiles_own_system_prompt_is_kept() -> None:
    assert shown("gate-system").system


def test_tools_are_a_capability() -> None:
    assert "tools" in shown("gate-tools").capabilities


@pytest.mark.parametrize(
    ("show", "mode"),
    [
        ({"template": "{{ .Prompt }}"}, Mode.CHATML),
        ({"template": " {{ .Prompt }}\n"}, Mode.CHATML),
        ({}, Mode.CHATML),
        ({"template": "{{ .Prompt }}", "modelfile": "FROM /x\nPARSER harmony\n"}, Mode.GO_TEMPLATE),
        ({"template": "{{ range .Messages }}{{ end }}"}, Mode.GO_TEMPLATE),
        ({"template": "{%- for m in messages %}"}, Mode.JINJA),
        ({"template": "{% x %}", "modelfile": "RENDERER qwen3-coder\n"}, Mode.RENDERER),
        ({"template": "x", "renderer": "qwen3-coder"}, Mode.RENDERER),
        ({"template": "{% x %}", "remote_model": "gpt-oss:120b"}, Mode.REMOTE),
        ({"remote_host": "https://ollama.com"}, Mode.REMOTE),
    ],
)
def test_who_writes_the_prompts_follows_from_the_description(show: dict[str, Any], mode: Mode) -> None:
    assert card(**show).mode is mode


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("num_ctx                        4096", (4096, None, None)),
        ("num_ctx 2048\nnum_batch 128\nnum_predict -1", (2048, 128, -1)),
        ('stop "num_ctx 99"\nnum_ctx 7', (7, None, None)),
        ("num_ctx 0\nnum_batch -5", (None, -5, None)),
        ("num_ctx true\nnum_predict false", (None, None, None)),
        ("xnum_ctx 5\nnum_ctx five\nnum_ctx 1.5", (None, None, None)),
        ("", (None, None, None)),
    ],
)
def test_parameters_are_read_from_their_lines(parameters: str, found: tuple[int | None, ...]) -> None:
    one = card(parameters=parameters)
    assert (one.num_ctx, one.load_options.get("num_batch"), one.num_predict) == found


def test_what_decides_how_a_model_is_loaded_is_read_with_its_type() -> None:
    one = card(parameters="num_gpu 0\nuse_mmap false\nnum_thread 8\ntemperature 1\nnum_batch 64\nmain_gpu x")
    assert one.load_options == {"num_gpu": 0, "use_mmap": False, "num_thread": 8, "num_batch": 64}


@pytest.mark.parametrize(
    "modelfile",
    [
        'FROM /a\nTEMPLATE """\nRENDERER evil\nPARSER evil\n"""\n',
        "# RENDERER evil\n# PARSER evil\nFROM /a\n",
        'FROM /a\nSYSTEM """You say\nRENDERER evil\n"""\n',
    ],
)
def test_words_of_a_template_or_comment_are_no_directives(modelfile: str) -> None:
    one = card(modelfile=modelfile, template="{{ range .Messages }}x{{ end }}")
    assert (one.renderer, one.parser, one.blob) == ("", "", "/a")


@pytest.mark.parametrize(("source", "blob"), [("/var/x/sha256-1", "/var/x/sha256-1"), ("llama3.2", ""), ("", "")])
def test_only_a_path_is_a_file(source: str, blob: str) -> None:
    assert card(modelfile=f"FROM {source}\n").blob == blob


def test_names_over_one_file_share_a_runner_and_others_do_not() -> None:
    one = card_from_show("a", "a", "d1", {"modelfile": "FROM /x\n"})
    two = card_from_show("b", "b", "d2", {"modelfile": "FROM /x\nSYSTEM hi\n"})
    none = card_from_show("c", "c", "d3", {})
    assert one.runner == two.runner
    assert none.runner == "d3"


@pytest.mark.parametrize("trained", [0, -1, "4096", None, 4096.5, [4096]])
def test_a_length_that_is_none_is_not_believed(trained: object) -> None:
    assert card(model_info={"general.architecture": "x", "x.context_length": trained}).trained is None


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("template", "modelfile", "parameters", "renderer", "parser", "system", "remote_host")


@given(
    st.dictionaries(st.sampled_from(FIELDS), JUNK),
    JUNK | st.dictionaries(st.text(max_size=8), JUNK),
    JUNK,
    JUNK | st.lists(JUNK, max_size=3),
    JUNK | st.lists(JUNK, max_size=3),
)
def test_a_description_of_any_shape_is_read(
    show: dict[str, Any], info: Any, details: Any, messages: Any, capabilities: Any
) -> None:
    found = card(**show, model_info=info, details=details, messages=messages, capabilities=capabilities)
    assert found.mode in Mode
