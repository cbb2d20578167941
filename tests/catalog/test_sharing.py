"""With a model's card come those of all names that may lie over the same file of weights."""

import asyncio
from typing import Any

import orjson
import pytest

from ollama_gate.catalog.catalog import Catalog
from ollama_gate.errors import UpstreamBroken
from ollama_gate.requests import Json

GIB = 1024**3


class Shelf:
    """An Ollama that lists models and describes them."""

    def __init__(self, **models: tuple[int, str]) -> None:
        self.models = models
        """Size and blob by name."""
        self.shown: list[str] = []
        self.broken: set[str] = set()

    async def get_json(self, path: str, *, within: float = 10.0) -> Any:
        assert within > 0
        return {"version": "0.33.0"} if path == "/api/version" else None

    async def exchange(self, method: str, path: str, payload: Json | None, *, within: float) -> tuple[int, bytes]:
        assert within > 0
        if payload is None:
            assert (method, path) == ("GET", "/api/tags")
            sizes = {name: size for name, (size, _) in self.models.items()}
            rows = [{"name": name, "digest": f"digest of {name}", "size": size} for name, size in sizes.items()]
            return 200, orjson.dumps({"models": rows})
        assert (method, path) == ("POST", "/api/show")
        name: str = payload["model"]
        self.shown.append(name)
        await asyncio.sleep(0)
        if name in self.broken:
            raise UpstreamBroken("cut")
        return 200, orjson.dumps({"modelfile": f"FROM {self.models[name][1]}\n", "model_info": {}})


def sharing(catalog: Catalog, name: str) -> list[str]:
    card = catalog.at_hand(name)
    assert card is not None
    return sorted(other.name for other in catalog.sharing(card))


async def test_names_of_about_the_same_size_are_read_with_it_and_the_others_are_not() -> None:
    shelf = Shelf(a=(5 * GIB, "/b/1"), b=(5 * GIB + 900, "/b/1"), c=(5 * GIB, "/b/2"), d=(6 * GIB, "/b/3"))
    catalog = Catalog(shelf, clock=lambda: 0.0)
    await catalog.card("a")
    assert sorted(shelf.shown) == ["a", "b", "c"]
    assert sharing(catalog, "a") == sharing(catalog, "b") == ["a", "b"]
    assert sharing(catalog, "c") == ["c"]


async def test_names_of_one_file_become_known_together_and_are_asked_for_once() -> None:
    shelf = Shelf(a=(5, "/b/1"), b=(5, "/b/1"))
    catalog = Catalog(shelf, clock=lambda: 0.0)

    async def ask(name: str) -> list[str]:
        await catalog.card(name)
        return sharing(catalog, name)

    assert await asyncio.gather(*(ask(name) for name in "abab")) == [["a", "b"]] * 4
    assert sorted(shelf.shown) == ["a", "b"]


async def test_a_neighbour_that_cannot_be_read_is_only_its_own_failure() -> None:
    shelf = Shelf(a=(5, "/b/1"), b=(5, "/b/1"))
    shelf.broken.add("b")
    catalog = Catalog(shelf, clock=lambda: 0.0)
    await catalog.card("a")
    assert sharing(catalog, "a") == ["a"]
    with pytest.raises(UpstreamBroken):
        await catalog.card("b")
    before = catalog.revision
    shelf.broken.clear()
    await catalog.card("b")
    assert sharing(catalog, "a") == ["a", "b"]
    assert catalog.revision > before
