"""Our own templates in the style of Ollama's library, against what Ollama's `template` package made of them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ollama_gate.counting.normalise import Conversation, Flow
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.errors import TemplateRefused
from support.gotemplates import RECORDED, conversation, recorded, render, template_names, template_text

CONVERSATIONS = recorded("conversations")
RENDERED = recorded("rendered")["rendered"]
ERAS = {
    "since 0.30": Era.JSON_TOOLS,
    "0.20 to 0.29": Era.TEMPLATE_STRUCTS,
    "0.14 to 0.19": Era.SHORT_PROPERTIES,
}


def expected(template: str, name: str, era: str) -> object:
    truth = RENDERED[template][name]
    return truth.get(era, truth["since 0.30"])


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("template", template_names())
def test_every_conversation_renders_as_in_ollama(template: str, era: str) -> None:
    assert set(RENDERED[template]) == set(CONVERSATIONS)
    for name, body in CONVERSATIONS.items():
        truth = expected(template, name, era)
        if isinstance(truth, str):
            assert render(template_text(template), body, era=ERAS[era]) == truth, name
        else:
            with pytest.raises(TemplateRefused):
                render(template_text(template), body, era=ERAS[era])


@pytest.mark.parametrize(("template", "prompt", "suffix", "truth"), recorded("suffixes"))
def test_a_suffix_sees_the_prompt_alone(template: str, prompt: str, suffix: str, truth: str) -> None:
    parsed = GoTemplate.parse(template_text(template), era=Era.JSON_TOOLS)
    got = parsed.render(Conversation(flow=Flow.SUFFIX, prompt=prompt, suffix=suffix), today=RECORDED)
    assert got == truth


def test_old_properties_have_no_list_of_what_they_require() -> None:
    truth = RENDERED["phi4mini"]["tools nested"]
    assert '"required":["zeta"]' in truth["since 0.30"]
    assert '"required":["zeta"]' not in truth["0.14 to 0.19"]


def test_the_eras_differ_where_a_tool_is_printed() -> None:
    differing = {template for template, rows in RENDERED.items() for truth in rows.values() if len(truth) > 1}
    assert {"llama31", "llama32", "nemotron"} <= differing


def test_one_template_renders_in_many_threads_at_once() -> None:
    parsed = {
        name: GoTemplate.parse(template_text(name), era=Era.JSON_TOOLS) for name in ("qwen3", "gptoss", "llama31")
    }
    work = [(name, talk) for name in parsed for talk in CONVERSATIONS] * 2

    def rendered(item: tuple[str, str]) -> str:
        return parsed[item[0]].render(conversation(CONVERSATIONS[item[1]]), today=RECORDED)

    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(rendered, work))

    assert texts == [expected(name, talk, "since 0.30") for name, talk in work]


def test_one_template_renders_again_and_again() -> None:
    parsed = GoTemplate.parse(template_text("qwen3"), era=Era.JSON_TOOLS)
    bodies = CONVERSATIONS["history"], CONVERSATIONS["tools with system"]
    first = [parsed.render(conversation(body), today=RECORDED) for body in bodies]
    assert [parsed.render(conversation(body), today=RECORDED) for body in bodies] == first
    assert first[0] != first[1]
