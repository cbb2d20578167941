import pytest

from ollama_gate.dialects.media import base64_fault, image_of_url
from ollama_gate.errors import Refused


@pytest.mark.parametrize("name", ["jpeg", "jpg", "png", "webp"])
def test_images_of_the_known_types_are_taken(name: str) -> None:
    assert image_of_url(f"data:image/{name};base64,YWJj") == "YWJj"


def test_base64_without_a_type_is_taken_too() -> None:
    assert image_of_url("data:;base64,YWJj\nZA==") == "YWJj\nZA=="


@pytest.mark.parametrize(
    "url",
    ["data:image/gif;base64,YWJj", "data:image/png;base64,YWJ", "data:image/png,abc", "YWJj", "", "data:;base64,é"],
)
def test_other_images_are_refused(url: str) -> None:
    with pytest.raises(Refused, match="invalid image input"):
        image_of_url(url)


@pytest.mark.parametrize("url", ["http://example.org/a.png", "https://example.org/a.png"])
def test_nothing_is_fetched(url: str) -> None:
    with pytest.raises(Refused, match="image URLs are not currently supported"):
        image_of_url(url)


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ("", None),
        ("YWJj", None),
        ("YW\r\nJj", None),
        ("!!", "illegal base64 data at input byte 0"),
        ("YWJ", "illegal base64 data at input byte 0"),
        ("YWJjYW", "illegal base64 data at input byte 4"),
        ("YWJjé", "illegal base64 data at input byte 4"),
        ("YW Jj", "illegal base64 data at input byte 2"),
    ],
)
def test_faults_are_named_as_go_names_them(payload: str, fault: str | None) -> None:
    assert base64_fault(payload) == fault
