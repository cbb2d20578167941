from dataclasses import replace
from pathlib import Path

import pytest

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.names import canonical
from ollama_gate.cli.findings import Finding, Level, Resident, Seen, examine, must_be_put_right
from ollama_gate.config import Config, ModelKeys
from ollama_gate.config.archive import Archive
from support.shows import PUBLISHED

DECLARED = ModelKeys(num_ctx=8192, budget=6000)


def card(name: str, *, trained: int | None = 32768, blob: str = "", embeds: bool = False) -> ModelCard:
    return ModelCard(
        key=canonical(name),
        name=name,
        digest=f"digest of {name}",
        mode=Mode.JINJA,
        trained=trained,
        blob=blob,
        capabilities=frozenset({"embedding" if embeds else "completion"}),
    )


def config(defaults: ModelKeys = DECLARED, **models: ModelKeys) -> Config:
    named = {canonical(name.replace("__", ":")): keys for name, keys in models.items()}
    return Config(defaults=defaults, models=named)


def seen(*cards: ModelCard, version: str = "0.33.1", resident: tuple[Resident, ...] = ()) -> Seen:
    return Seen(version, cards, resident, machine=16 * 1024**3)


def said(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.about) for finding in findings]


def test_a_declared_configuration_that_ollama_agrees_with_has_no_findings() -> None:
    resident = (Resident("a:latest", 8192), Resident("unlisted:latest", 1), Resident("b:latest", None))
    assert examine(config(), seen(card("a:latest"), card("b:latest"), resident=resident)) == []
    assert examine(config(), None) == []


def test_each_model_without_declared_window_or_budget_is_named() -> None:
    some = config(ModelKeys(), a=DECLARED, b=ModelKeys(num_ctx=4096))
    findings = examine(some, seen(card("a:latest"), card("b:latest"), card("c:7b")))
    assert said(findings) == [("warning", "b:latest"), ("warning", "c:7b")]
    assert findings[0].what == "budget not declared: window 4096, budget 3276"
    assert findings[1].what == "num_ctx and budget not declared: window 8192, budget 6553"
    assert findings[1].fix == 'declare num_ctx and budget under [models."<name>"] or [defaults]'
    assert not must_be_put_right(findings, strict=False)
    assert must_be_put_right(findings, strict=True)


def test_an_embedding_model_needs_no_budget() -> None:
    embedder = card("e:latest", embeds=True)
    assert examine(config(ModelKeys(num_ctx=2048)), seen(embedder)) == []
    findings = examine(config(ModelKeys()), seen(embedder))
    assert [finding.what for finding in findings] == ["num_ctx not declared: window 8192"]


def test_a_cloud_model_is_not_the_gates_to_declare() -> None:
    assert examine(config(ModelKeys()), seen(replace(card("cloudy:latest"), mode=Mode.REMOTE))) == []


def test_without_ollama_the_models_of_the_file_are_named() -> None:
    findings = examine(config(ModelKeys(), a=ModelKeys(num_ctx=512), b=DECLARED), None)
    assert said(findings) == [("warning", "a:latest"), ("note", "[defaults]")]


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("0.12.5", ["error"]),
        ("0.9.7-rc0", ["error"]),
        ("0.12.6", ["note"]),
        ("0.13.3", []),
        ("v0.33.1-rc2", []),
        ("1.0", []),
        ("0.0.0", ["note"]),
        ("main", ["note"]),
        ("", ["note"]),
        ("0.³3", ["note"]),
    ],
)
def test_an_ollama_that_ignores_what_the_gate_asks_is_an_error(version: str, level: list[str]) -> None:
    findings = examine(config(), seen(version=version))
    assert [finding.level for finding in findings] == level
    assert must_be_put_right(findings, strict=False) == (level == ["error"])


def test_a_model_loaded_with_another_window_is_told() -> None:
    resident = (Resident("a:latest", 4096),)
    findings = examine(config(), seen(card("a:latest"), resident=resident))
    assert said(findings) == [("warning", "a:latest")]
    assert "window of 4096, and the gate gives it 8192" in findings[0].what


def test_a_window_beyond_the_trained_length_is_told_with_what_is_given_instead() -> None:
    findings = examine(config(a=ModelKeys(num_ctx=8192, budget=8000)), seen(card("a:latest", trained=2048)))
    assert said(findings) == [("warning", "a:latest"), ("warning", "a:latest")]
    assert "2047 is used" in findings[0].what
    assert "8192 is more than the 2048" in findings[1].what


SHARED = (card("a:latest", blob="/b/1"), card("b:latest", blob="/b/1"), card("c:latest", blob="/b/2"))


def test_names_that_share_a_file_and_have_different_windows_declared_are_told() -> None:
    some = config(a=ModelKeys(num_ctx=8192, budget=4000), b=ModelKeys(num_ctx=4096, budget=4000))
    [found] = examine(some, seen(*SHARED))
    assert (found.level, found.about) == ("warning", "a:latest, b:latest")
    assert "a:latest 8192, b:latest 4096 cannot all be had" in found.what
    assert "all get num_ctx 8192, shift false" in found.fix


def test_names_that_share_a_file_need_no_more_than_one_declaration() -> None:
    assert examine(config(), seen(*SHARED)) == []
    assert examine(config(b=ModelKeys(num_ctx=16384, budget=9000)), seen(*SHARED)) == []


def test_names_that_share_a_file_and_shift_differently_are_told() -> None:
    some = config(a=ModelKeys(shift=False), b=ModelKeys(shift=True))
    found = [one for one in examine(some, seen(*SHARED)) if "share" in one.what]
    assert len(found) == 1
    assert "a:latest shift = false, b:latest shift = true" in found[0].what


def llama(name: str = "a:latest", published: str = "llama-8b") -> ModelCard:
    return replace(card(name), show=PUBLISHED[published], size=5 * 1024**3)


def memory(section: dict[str, object], **upstream: object) -> Config:
    return Config.model_validate({"memory": section, "upstream": upstream, "defaults": DECLARED.model_dump()})


def test_a_model_that_can_never_fit_is_an_error_that_says_what_would() -> None:
    roomy = {"host_cache_per_model": 0, "limit": "12GiB"}
    assert examine(memory(roomy), seen(llama())) == []
    [found] = examine(memory({**roomy, "limit": "6GiB"}), seen(llama()))
    assert (found.level, found.about) == ("error", "a:latest")
    assert "with a window of 8192 and 1 slot it takes 6." in found.what
    largest = int(found.fix.split("num_ctx = ")[1].split(" ")[0])
    assert 4096 < largest < 8192
    [hopeless] = examine(memory({**roomy, "limit": "2GiB"}), seen(llama()))
    assert "no window makes it fit" in hopeless.fix


def test_old_prompts_that_keep_a_model_from_ever_fitting_are_named_with_their_settings() -> None:
    [found] = examine(memory({"limit": "12GiB", "counts_host": True}), seen(llama()))
    assert found.fix.startswith("8.0 GiB of it are old prompts that llama-server may keep: set LLAMA_ARG_CACHE_RAM")
    assert examine(memory({"limit": "12GiB", "counts_host": True, "host_cache_per_model": "2GiB"}), seen(llama())) == []
    assert examine(memory({"limit": "12GiB", "counts_host": False}), seen(llama())) == []


def test_slots_count_towards_what_never_fits() -> None:
    section = {"host_cache_per_model": 0, "limit": "8GiB"}
    assert examine(memory(section), seen(llama())) == []
    [found] = examine(memory(section, num_parallel=8), seen(llama()))
    assert "8 slots" in found.what


def test_a_cache_that_ollama_cannot_launch_is_an_error() -> None:
    [found] = examine(memory({}, kv_cache_type="q8_0", flash_attention=False), seen(llama()))
    assert (found.level, found.what) == ("error", "a q8_0 cache needs flash attention")


def test_what_the_memory_arithmetic_assumes_is_worth_a_note() -> None:
    strange = {"general.architecture": "brandnew"} | {
        f"brandnew.{key.partition('.')[2]}": value
        for key, value in PUBLISHED["llama-8b"]["model_info"].items()
        if key.startswith("llama.")
    }
    odd = replace(llama(), show={**PUBLISHED["llama-8b"], "model_info": strange})
    [found] = examine(memory({}), seen(odd))
    assert (found.level, "no memory rule for architecture brandnew" in found.what) == ("note", True)
    [unknown] = examine(memory({}), seen(replace(llama(), show={"model_info": {}})))
    assert (unknown.level, "cannot be worked out" in unknown.what) == ("note", True)


def test_an_automatic_limit_that_leaves_nothing_or_means_the_wrong_memory_is_told() -> None:
    [found] = examine(memory({"limit": "auto", "reserve": "1024TiB"}), seen())
    assert (found.level, found.about) == ("error", "memory.limit")
    [warned] = examine(memory({"limit": "auto", "reserve": 0, "gpus": 1}), seen())
    assert (warned.level, warned.about) == ("warning", "memory.limit")
    assert examine(memory({"limit": "auto", "reserve": 0, "gpus": 1, "counts_host": True}), seen()) == []
    on_gpu = seen(resident=(Resident("x:latest", 8192, size_vram=5),))
    assert [one.about for one in examine(memory({"limit": "auto", "reserve": 0}), on_gpu)] == ["memory.limit"]


def test_a_model_that_is_not_installed_is_worth_a_note() -> None:
    assert said(examine(config(gone=DECLARED), seen())) == [("note", "gone:latest")]


def test_a_window_that_llama_server_would_round_up_is_told() -> None:
    findings = examine(config(a=ModelKeys(num_ctx=8000, budget=6000)), None)
    assert said(findings) == [("note", "a:latest")]
    assert findings[0].fix == "num_ctx = 8192 costs nothing more"


def test_what_weakens_a_promise_is_told(tmp_path: Path) -> None:
    weak = Config.model_validate(
        {
            "server": {"listen": ":11435"},
            "queue": {"deadline": "5m"},
            "defaults": {"num_ctx": 8192, "budget": 6000, "shift": True, "tokenizer": str(tmp_path / "none.json")},
        }
    )
    assert said(examine(weak, None)) == [
        ("error", "[defaults]"),
        ("warning", "[defaults]"),
        ("warning", "queue.deadline"),
        ("note", "server.tls_cert"),
        ("note", "server.listen"),
    ]


def test_the_worst_comes_first() -> None:
    findings = examine(config(ModelKeys(num_ctx=8000)), seen(card("a:latest"), version="0.1.0"))
    assert [finding.level for finding in findings] == sorted([f.level for f in findings], key=list(Level).index)
    assert len(findings) == 3


def test_compaction_and_archive_are_named_where_one_goes_without_the_other() -> None:
    compacting = DECLARED.model_copy(update={"compaction": True})
    archive = Archive(enabled=True)
    assert said(examine(config(compacting), None)) == [("note", "archive.enabled")]
    assert said(examine(config(a=compacting), seen(card("a:latest")))) == [("note", "archive.enabled")]
    assert said(examine(config().model_copy(update={"archive": archive}), None)) == [("note", "archive.enabled")]
    assert examine(config(compacting).model_copy(update={"archive": archive}), None) == []


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        (24, ['24B is less than any model takes: every request would be refused → limit = "24GiB", if that was meant']),
        (2**26 - 1, ["67108863B is less than any model takes: every request would be refused → write it"]),
        (2**26, []),
    ],
)
def test_a_memory_limit_that_no_model_fits_into_is_an_error(limit: int, found: list[str]) -> None:
    config = Config.model_validate({"memory": {"limit": limit}})
    told = [f"{one.what} → {one.fix}" for one in examine(config, None) if one.about == "memory.limit"]
    assert len(told) == len(found)
    assert all(said.startswith(start) for said, start in zip(told, found, strict=True))
    assert must_be_put_right(examine(config, None), strict=False) is bool(found)
