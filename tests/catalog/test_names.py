import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.catalog.names import InvalidName, Source, canonical, display, is_cloud, is_valid, parse
from ollama_gate.errors import GateError

PART80 = "8" * 80


@pytest.mark.parametrize(
    "name",
    [
        "llama3.2",
        "llama3.2:latest",
        "library/llama3.2",
        "registry.ollama.ai/library/llama3.2:latest",
        "Llama3.2:Latest",
        "https://registry.ollama.ai/library/llama3.2",
        "  llama3.2\n",
        "llama3.2:local",
        "llama3.2:latest:LOCAL",
    ],
)
def test_every_spelling_of_one_model_has_one_key(name: str) -> None:
    assert canonical(name) == "registry.ollama.ai/library/llama3.2:latest"


def test_different_models_have_different_keys() -> None:
    names = [
        "llama3.2",
        "llama3.2:1b",
        "llama3.2:1b-cloud",
        "llama3.2:cloud",
        "mylab/llama3.2",
        "hf.co/library/llama3.2",
        "hf.co/example-org/Example-7B-GGUF:Q4_K_M",
        "hf.co/example-org/Example-7B-GGUF",
        "host:5000/library/llama3.2",
    ]
    assert len({canonical(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("hf.co/example-org/Example-7B-GGUF:Q4_K_M", "hf.co/example-org/example-7b-gguf:q4_k_m"),
        ("mylab/coder", "registry.ollama.ai/mylab/coder:latest"),
        ("host:5000/ns/model", "host:5000/ns/model:latest"),
        ("scheme://host:port/namespace/model:tag", "host:port/namespace/model:tag"),
        ("_why/_the/_lucky:_stiff", "_why/_the/_lucky:_stiff"),
        (f"{'3' * 350}/{PART80}/{PART80}:{PART80}", f"{'3' * 350}/{PART80}/{PART80}:{PART80}"),
        ("http:/ns/model", "http:/ns/model:latest"),
        ("https:///ns/model", "registry.ollama.ai/ns/model:latest"),
    ],
)
def test_parts_are_cut_where_ollama_cuts_them(name: str, key: str) -> None:
    assert canonical(name) == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gpt-oss:20b:cloud", "registry.ollama.ai/library/gpt-oss:20b-cloud"),
        ("gpt-oss:20b-cloud", "registry.ollama.ai/library/gpt-oss:20b-cloud"),
        ("gpt-oss:20b-CLOUD", "registry.ollama.ai/library/gpt-oss:20b-cloud"),
        ("gpt-oss: cloud", "registry.ollama.ai/library/gpt-oss:cloud"),
        ("me/gpt-oss:cloud", "registry.ollama.ai/me/gpt-oss:cloud"),
    ],
)
def test_a_cloud_name_has_the_key_of_its_installed_stub(name: str, key: str) -> None:
    assert is_cloud(name)
    assert canonical(name) == key
    assert canonical(canonical(name)) == key


@pytest.mark.parametrize("name", ["llama3.2", "my-cloud-model", "qwen3:8b:local", "a:cloudy", "", "x:cloud:local"])
def test_other_names_are_not_cloud_names(name: str) -> None:
    assert not is_cloud(name)


def test_a_local_suffix_is_kept_as_the_source_only() -> None:
    assert parse("qwen3:8b:local").source is Source.LOCAL
    assert parse("qwen3:8b").source is Source.UNSPECIFIED
    assert canonical("qwen3:8b:local") == canonical("qwen3:8b")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "../etc/passwd",
        "llama3.2:la test",
        "..",
        "a/../b",
        "../../../x:y",
        "mm:",
        "/nn/mm",
        "//",
        "//mm",
        "hh//",
        "00@",
        "@",
        "^",
        "-m",
        ".m",
        "a:-x",
        "-hh/nn/mm:tt",
        "hh/-nn/mm",
        "hh/n.n/mm",
        "host/name:space/model:tag",
        "a/b/c/d",
        "http://x",
        "model\x00",
        "mod\nel",
        "naïve",
        "ｌlama",
        "llama\u212a",
        "x:-cloud",
        "x::cloud",
        "x:cloud:local",
        "x:20b-cloud:cloud",
        "x:local:local",
        "8" * 81,
        "x:" + "8" * 81,
        "3" * 351 + "/n/m",
        "a/" * 5000,
        "x\x1c",
    ],
)
def test_what_ollama_calls_invalid_is_refused(name: str) -> None:
    assert not is_valid(name)
    with pytest.raises(InvalidName):
        canonical(name)


@pytest.mark.parametrize("name", [None, 7, True, ["llama3.2"], {"name": "llama3.2"}, b"llama3.2"])
def test_only_text_is_a_name(name: object) -> None:
    assert not is_valid(name)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("registry.ollama.ai/library/llama3.2", "llama3.2:latest"),
        ("Registry.Ollama.AI/Library/Llama3.2", "Llama3.2:latest"),
        ("mylab/coder:7b", "mylab/coder:7b"),
        ("hf.co/org/model", "hf.co/org/model:latest"),
        ("hf.co/library/model", "hf.co/library/model:latest"),
        ("gpt-oss:20b:cloud", "gpt-oss:20b-cloud"),
    ],
)
def test_the_shown_name_is_the_shortest_with_a_tag(name: str, shown: str) -> None:
    assert display(name) == shown


def test_an_invalid_name_is_an_error_of_the_gate_and_says_what_came() -> None:
    with pytest.raises(GateError, match="invalid model name: 'a b'"):
        parse("a b")


@given(st.text(max_size=60) | st.from_regex(r"([a-z.:]{0,5}(://)?[a-z./-]{0,6}/)?[A-Za-z._:/-]{0,9}", fullmatch=True))
def test_a_key_is_its_own_key_and_never_a_path_upwards(name: str) -> None:
    if not is_valid(name):
        return
    key = canonical(name)
    assert canonical(key) == key
    assert canonical(display(name)) == key
    assert is_cloud(key) == is_cloud(name)
    assert key.isascii()
    assert all(part and not part.startswith(".") for part in key.split("/"))
