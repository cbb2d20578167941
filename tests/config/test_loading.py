from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.admission.memory_rules import CACHE_TYPES
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config, InvalidConfig, find, load
from ollama_gate.config.loading import variable
from ollama_gate.config.model import Upstream

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        file = tmp_path / "ollama-gate.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def wrong(file: Path | None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What is said, by key."""
    with pytest.raises(InvalidConfig) as caught:
        load(file, environ or {}, canonical)
    assert str(caught.value).count("\n") == len(caught.value.problems) - 1
    return {problem.key or problem.where: problem.what for problem in caught.value.problems}


def test_without_a_file_the_defaults_are_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ollama_gate.config.loading.SEARCH", (Path("ollama-gate.toml"),))
    config = load(None, {"HOME": "/home/x"}, canonical)
    assert config.server.address.loopback
    assert config.upstream.url == "http://127.0.0.1:11434"
    assert config.counting.cache_dir == Path("/home/x/.cache/ollama-gate")
    policy = config.model_policy(canonical("qwen3"))
    assert (policy.num_ctx, policy.budget, policy.shift, policy.own_num_ctx) == (8192, None, False, None)
    assert not policy.num_ctx_declared
    assert not policy.budget_declared


def test_sizes_and_times_arrive_as_bytes_and_seconds(write: Write) -> None:
    config = load(write('[memory]\nlimit = "24GiB"\n[queue]\ndeadline = "2m"\n[server]\ndrain = 5\n'), {})
    assert config.memory.limit == 24 * 1024**3
    assert config.queue.deadline == 120.0
    assert config.server.drain == 5.0


def test_a_model_gets_its_own_keys_and_the_defaults_for_the_rest(write: Write) -> None:
    file = write(
        '[defaults]\nshift = true\nbudget = "50%"\n[models."Qwen3-Coder:30b"]\nnum_ctx = 32768\nbudget = 26000\n'
        '[models.gemma3]\non_long_reply = "refuse"\n'
    )
    config = load(file, {}, canonical)
    own = config.model_policy("registry.ollama.ai/library/qwen3-coder:30b")
    assert (own.num_ctx, own.own_num_ctx, own.budget, own.shift) == (32768, 32768, 26000, True)
    assert own.num_ctx_declared
    assert own.budget_declared
    other = config.model_policy(canonical("gemma3:latest"))
    assert (other.num_ctx, other.own_num_ctx, other.budget) == (8192, None, 0.5)
    assert other.on_long_reply == "refuse"
    assert not other.num_ctx_declared
    assert config.model_policy(canonical("unheard-of")).budget == 0.5


def test_everything_that_is_wrong_is_said_at_once(write: Write) -> None:
    said = wrong(
        write(
            "listen = 1\n[server]\nlistn = ':1'\n[memory]\nlimit = '24G'\non_full = 'evcit'\n[queu]\n"
            "[defaults]\nnum_ctx = 3\nshift = 'no'\ncompactoin = true\n[models.x]\nnum_ctxx = 1\nbudget = 0\n"
        ),
        {"OLLAMA_GATE_QUEUE_DEPH": "1"},
    )
    assert said == {
        "OLLAMA_GATE_QUEUE_DEPH": "unknown variable: did you mean OLLAMA_GATE_QUEUE_DEPTH?",
        "listen": "unknown key at the top of the file: it belongs in [server]",
        "server.listn": "unknown key: did you mean `listen`?",
        "memory.limit": "'24G' is ambiguous: write 24GiB (1024 based) or 24GB",
        "memory.on_full": "'evcit' is not one of evict, wait, refuse (did you mean 'evict'?)",
        "queu": "unknown section: did you mean [queue]?",
        "defaults.num_ctx": "3 is below the least allowed, 4",
        "defaults.shift": "'no' is not true or false",
        "defaults.compactoin": "unknown key: did you mean `compaction`?",
        "models.x.num_ctxx": "unknown key: did you mean `num_ctx`?",
        "models.x.budget": "0 is below the least allowed, 1",
    }


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[server]\nnum_ctx = 1", "server.num_ctx", "belongs in [defaults]"),
        ("[server]\nxyzzy = 1", "server.xyzzy", "the known ones are listen, open"),
        ("xyzzy = 1", "xyzzy", "the known ones are server, access"),
        ("server = 1", "server", "is a table"),
        ("[models]\nx = 1", "models.x", "is a table"),
        ("models = 1", "models", "is a table"),
        ("[server]\ndrain = '2h'", "server.drain", "2h is above the most allowed, 1h"),
        ("[server]\nmax_body = 1", "server.max_body", "1B is below the least allowed, 1KiB"),
        ("[upstream]\nconnect_timeout = 0", "upstream.connect_timeout", "0s is not above 0s"),
        ("[upstream]\nnum_parallel = 1.5", "upstream.num_parallel", "1.5 is not a whole number"),
        ("[upstream]\nnum_parallel = true", "upstream.num_parallel", "True is not a whole number"),
        ("[upstream]\nnum_parallel = '2'", "upstream.num_parallel", "'2' is not a whole number"),
        ("[upstream]\nurl = 11434", "upstream.url", "is not a text in quotes"),
        ("[upstream]\nurl = 'ftp://x'", "upstream.url", "not a scheme"),
        ("[server]\norigins = ['http://x/path']", "server.origins", "is not an origin"),
        ("[server]\norigins = [1]", "server.origins", "is not an origin"),
        ("[counting]\nestimate_margin = nan", "counting.estimate_margin", "nan"),
        ("[counting]\ncache_dir = ''", "counting.cache_dir", "write a path"),
        ("[defaults]\nbudget = '0%'", "defaults.budget", "above 0%"),
        ("[defaults]\nbudget = '101%'", "defaults.budget", "above 0% and not above 100%"),
        ("[defaults]\nbudget = 'all'", "defaults.budget", "is not a budget"),
        ("[defaults]\nbudget = '١٠%'", "defaults.budget", "is not a budget"),
        ("[defaults]\nbudget = 0.8", "defaults.budget", "is not a whole number"),
        ("[models.llama3.2]\nnum_ctx = 4096", "models.llama3.2", '[models."llama3.2"]'),
        ("[models.'a b']", 'models."a b"', "is not a model name"),
        ("[models.x]\n[models.'X:latest']", 'models."X:latest"', 'the same model as [models."x"]'),
        ("[defaults]\nnum_ctx = 4096\nbudget = 4096", "defaults.budget", "lower budget to 4095 or less"),
        ("[defaults]\nbudget = 8192", "defaults.budget", "the window of 8192"),
        ("[defaults]\nbudget = 5000\n[models.x]\nnum_ctx = 4096", "models.x.num_ctx", "raise num_ctx"),
        ("[upstream]\nurl = 'localhost:11435'", "upstream.url", "the gate's own address"),
    ],
)
def test_each_mistake_is_named_with_its_way_out(write: Write, text: str, key: str, hint: str) -> None:
    said = wrong(write(text))
    assert list(said) == [key]
    assert hint in said[key]


def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path, write: Write) -> None:
    missing = tmp_path / "none.toml"
    assert wrong(missing) == {str(missing): "there is no such file"}
    assert "cannot be read" in wrong(tmp_path)[str(tmp_path)]
    file = write("[server\n")
    assert "is not TOML" in wrong(file)[str(file)]
    assert 'in quotes, [models."qwen3:8b"]' in wrong(write("[models.qwen3:8b]\n"))[str(file)]
    file.write_bytes(b"x = '\xff'")
    assert "is not UTF-8 at byte 5" in wrong(file)[str(file)]
    file.write_bytes(b"#" * (4 * 1024**2 + 1))
    assert "larger than 4 MiB" in wrong(file)[str(file)]
    file.write_text("x = " + "[" * 100_000)
    assert "nested too deep" in wrong(file)[str(file)]


def test_a_byte_order_mark_is_no_mistake(write: Write) -> None:
    assert load(write("\ufeff[queue]\ndepth = 3\n"), {}).queue.depth == 3


@pytest.mark.parametrize(
    ("name", "text", "section", "key", "value"),
    [
        ("OLLAMA_GATE_SERVER_LISTEN", ":80", "server", "listen", ":80"),
        ("OLLAMA_GATE_SERVER_MAX_BODY", "1048576", "server", "max_body", 1048576),
        ("OLLAMA_GATE_SERVER_ORIGINS", "http://a, https://b:1", "server", "origins", ("http://a", "https://b:1")),
        ("OLLAMA_GATE_UPSTREAM_URL", "box", "upstream", "url", "http://box:11434"),
        ("OLLAMA_UPSTREAM", "box", "upstream", "url", "http://box:11434"),
        ("OLLAMA_GATE_UPSTREAM_NUM_PARALLEL", "4", "upstream", "num_parallel", 4),
        ("OLLAMA_GATE_UPSTREAM_FORWARD_AUTHORIZATION", "TRUE", "upstream", "forward_authorization", True),
        ("OLLAMA_GATE_MEMORY_LIMIT", "auto", "memory", "limit", "auto"),
        ("OLLAMA_GATE_COUNTING_ESTIMATE_MARGIN", "0.5", "counting", "estimate_margin", 0.5),
        ("OLLAMA_GATE_DEFAULTS_BUDGET", "80%", "defaults", "budget", "80%"),
        ("OLLAMA_GATE_DEFAULTS_BUDGET", "4000", "defaults", "budget", 4000),
    ],
)
def test_a_variable_wins_over_the_file(
    write: Write, name: str, text: str, section: str, key: str, value: object
) -> None:
    file = write("[server]\nlisten = '127.0.0.1:1'\n[upstream]\nurl = 'other'\nnum_parallel = 2\n")
    assert getattr(getattr(load(file, {name: text}), section), key) == value


def test_the_long_name_of_the_upstream_wins_over_the_short_one() -> None:
    environ = {"OLLAMA_UPSTREAM": "short", "OLLAMA_GATE_UPSTREAM_URL": "long"}
    assert load(None, environ).upstream.url == "http://long:11434"


def test_an_empty_variable_is_unset_and_foreign_ones_are_left_alone() -> None:
    environ = {"OLLAMA_GATE_QUEUE_DEPTH": "", "OLLAMA_HOST": "x", "OLLAMA_GATE_TEST_CACHE": "/tmp", "PATH": "/bin"}
    assert load(None, environ).queue.depth == Config().queue.depth


def test_a_mistake_in_a_variable_is_laid_to_the_variable() -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(None, {"OLLAMA_GATE_QUEUE_DEPTH": "-1", "OLLAMA_GATE_MODELS_X": "1", "OLLAMA_GATE_WHAT": "1"})
    assert {problem.where: problem.what for problem in caught.value.problems} == {
        "OLLAMA_GATE_QUEUE_DEPTH": "-1 is below the least allowed, 0",
        "OLLAMA_GATE_MODELS_X": 'single models are set in the file only, under [models."name"]',
        "OLLAMA_GATE_WHAT": "unknown variable: unset it",
    }


def test_every_key_has_a_variable_of_its_own() -> None:
    names = [variable(section, name) for section, name in _keys()]
    assert len(set(names)) == len(names)
    environ = dict.fromkeys(names, "no such value \0")
    with pytest.raises(InvalidConfig) as caught:
        load(None, environ)
    assert {problem.where for problem in caught.value.problems} == set(names)


def _keys() -> list[tuple[str, str]]:
    config = Config()
    return [
        (section, name)
        for section in Config.model_fields
        if section != "models"
        for name in type(getattr(config, section)).model_fields
    ]


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"CACHE_DIRECTORY": "/var/cache/ollama-gate:/x", "HOME": "/h"}, "/var/cache/ollama-gate"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/ollama-gate"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/ollama-gate"),
        ({}, "/var/cache/ollama-gate"),
    ],
)
def test_the_cache_is_where_the_system_keeps_caches(environ: dict[str, str], place: str) -> None:
    assert load(None, environ).counting.cache_dir == Path(place)


def test_a_relative_path_starts_at_the_files_directory(write: Write, tmp_path: Path) -> None:
    file = write(
        "[counting]\ncache_dir = 'cache'\n[models.x]\ntokenizer = '/opt/t.json'\n[models.y]\ntokenizer = 't'\n"
    )
    config = load(file, {}, canonical)
    assert config.counting.cache_dir == tmp_path / "cache"
    assert config.model_policy(canonical("x")).tokenizer == Path("/opt/t.json")
    assert config.model_policy(canonical("y")).tokenizer == tmp_path / "t"


def test_files_are_looked_for_in_the_stated_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    monkeypatch.setattr("ollama_gate.config.loading.SEARCH", (first, second))
    assert find(None, {}) is None
    second.touch()
    assert find(None, {}) == second
    first.touch()
    assert find(None, {}) == first
    assert find(None, {"OLLAMA_GATE_CONFIG": "/named"}) == Path("/named")
    assert find(Path("/given"), {"OLLAMA_GATE_CONFIG": "/named"}) == Path("/given")


_scalars: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
_names = st.sampled_from([name for _, name in _keys()]) | st.text(max_size=8)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(list(Config.model_fields)) | st.text(max_size=8),
        st.dictionaries(_names, st.dictionaries(_names, _values, max_size=2) | _values, max_size=4) | _values,
        max_size=4,
    )
)
def test_any_tables_are_a_configuration_or_a_list_of_problems(tables: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ollama_gate.config.loading._read", lambda _file: tables)
        try:
            load(Path("made-up.toml"), {}, canonical)
        except InvalidConfig as invalid:
            assert all(problem.what and problem.key for problem in invalid.problems)  # noqa: PT017  both outcomes are fine


def test_the_cache_types_are_those_whose_size_is_known() -> None:
    (annotation,) = [field.annotation for name, field in Upstream.model_fields.items() if name == "kv_cache_type"]
    assert set(get_args(annotation)) == set(CACHE_TYPES)


def test_signals_to_block_and_tools_to_exempt_can_be_named_in_variables() -> None:
    environ = {"OLLAMA_GATE_SIGNALS_BLOCK": "reread, repeated-call", "OLLAMA_GATE_SIGNALS_EXEMPT_TOOLS": "wait_*,poll"}
    signals = load(None, environ).signals
    assert (signals.block, signals.exempt_tools) == (("reread", "repeated-call"), ("wait_*", "poll"))
    with pytest.raises(InvalidConfig) as caught:
        load(None, {"OLLAMA_GATE_SIGNALS_BLOCK": "rereads"})
    assert '"rereads" is no signal: the signals are repeated-call, reread,' in str(caught.value)
