"""What is read out of messages, one rule at a time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.observe.transcript import Reading, Tools

LONG = "a line of a file that is worth reading " * 8


def called(name: str, said: str = "", /, **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": said, "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


def asked(text: str = "Find out why the schema check fails and fix it in the smallest way") -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(text: str = "{}") -> dict[str, Any]:
    return {"role": "tool", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def read(*messages: dict[str, Any], exempt: tuple[str, ...] = ()) -> Reading:
    reading = Reading()
    reading.read(messages, Tools(exempt))
    return reading


def test_identical_calls_in_a_row_are_counted_whatever_the_order_of_arguments() -> None:
    same = [called("f", a=1, b={"x": 1, "y": 2}), result(), called("f", b={"y": 2, "x": 1}, a=1), result()]
    assert read(asked(), *same, *same).run == 4
    assert read(asked(), *same, called("f", a=2), result()).run == 1


def test_arguments_as_text_are_the_same_as_an_object() -> None:
    text = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"b": 2, "a": 1}'}}]}
    assert read(called("f", a=1, b=2), result(), text, result()).run == 2


def test_identical_calls_of_one_message_are_a_row_too() -> None:
    call = called("f", a=1)["tool_calls"][0]
    assert read({"role": "assistant", "tool_calls": [call, call, call]}).run == 3


def test_pairs_of_calls_that_repeat_are_a_row() -> None:
    pair = {"role": "assistant", "tool_calls": [*called("f")["tool_calls"], *called("g")["tool_calls"]]}
    assert read(pair, result(), result(), pair, result(), result()).run == 2


def test_the_user_and_an_answer_end_a_row() -> None:
    assert read(called("f"), result(), asked(), called("f"), result()).run == 1
    assert read(called("f"), result(), said("It is done."), called("f"), result()).run == 1


def test_a_reminder_that_the_agent_puts_in_does_not_end_a_row() -> None:
    reminder = asked("<system-reminder>There are todos.</system-reminder>")
    assert read(called("f"), result(), reminder, called("f"), result()).run == 2


def test_an_exempt_tool_neither_makes_nor_ends_a_row() -> None:
    poll = [called("wait_for", id=1), result(LONG)]
    reading = read(called("f"), result(), *poll, *poll, *poll, called("f"), result(), exempt=("wait_*",))
    assert (reading.run, reading.rereads) == (2, 0)


def test_what_was_fetched_before_and_is_the_same_is_read_again() -> None:
    first = [called("read", path="a"), result(LONG), called("read", path="b"), result(LONG + "b")]
    assert read(*first).rereads == 0
    assert read(*first, *first).rereads == 2
    assert read(*first, called("read", path="a"), result(LONG + "changed")).rereads == 0
    assert read(*[called("ls"), result("short"), *first] * 3).rereads == 4


def test_what_may_have_changed_in_between_is_no_rereading() -> None:
    look, edit = [called("read", path="a"), result(LONG)], [called("edit", path="b"), result("edited")]
    assert read(*look, *edit, *look).rereads == 0
    failed = [called("edit", path="b"), result("Error: no match")]
    assert read(*look, *failed, *look).rereads == 1


def test_the_same_call_at_once_is_repeated_and_not_read_again() -> None:
    assert read(*[called("read", path="a"), result(LONG)] * 3).rereads == 0


def test_only_the_last_twenty_calls_count_as_read_again() -> None:
    again = [message for path in "abab" for message in (called("read", path=path), result(LONG))]
    fresh = [message for at in range(20) for message in (called("read", path=str(at)), result(LONG))]
    assert read(*again).rereads == 2
    assert read(*again, *fresh).rereads == 0


def test_a_goal_that_is_told_again_is_counted_from_the_second_answer_on() -> None:
    goal = asked()["content"]
    again = said(f"I am to {goal.lower()}. First I look.")
    assert read(asked(), again).restated == 0
    assert read(asked(), again, again, again).restated == 2
    assert read(asked(), said("Now the tests."), said("And the schema.")).restated == 0
    assert read(asked(), again, again, asked("And now something else that is long enough to be told")).restated == 0


def test_a_short_request_has_no_goal_to_tell() -> None:
    assert read(asked("go on"), said("go on"), said("go on"), said("go on")).restated == 0


def test_a_goal_is_remembered_from_one_reading_to_the_next() -> None:
    reading, tools = Reading(), Tools()
    reading.read([asked()], tools)
    for _ in range(3):
        reading.read([said(asked()["content"])], tools)
    assert reading.restated == 2


def test_calls_written_as_text_are_seen_after_real_ones() -> None:
    text = said('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')
    assert read(text).calls_as_text == 0
    reading = read(called("f"), result(), text)
    assert (reading.calls_as_text, reading.clean) == (1, 1)
    assert read(called("f"), result(), said('{"name": "f", "arguments": {"a": 1}}')).calls_as_text == 1
    assert read(called("f"), result(), said('A "name" and the "arguments" of it are needed.')).calls_as_text == 0
    assert read(called("f"), result(), text, *[said("fine")] * 8).calls_as_text == 0


def test_files_that_are_really_changed_are_counted_once() -> None:
    edit = [called("edit_file", path="a", old="x", new="y"), result("edited")]
    assert len(read(asked(), *edit, *edit).changed) == 1
    assert len(read(asked(), *edit, called("write", file_path="b"), result("ok")).changed) == 2
    assert read(asked(), edit[0], result("Error: no match for old")).changed == set()
    assert read(asked(), called("TodoWrite", todos=["a"]), result("ok")).changed == set()
    assert len(read(asked(), called("apply_patch", patch="*** Begin"), result("ok")).changed) == 1


def test_a_shell_changes_files_when_its_command_does() -> None:
    def changed(command: str) -> int:
        return len(read(asked(), called("bash", command=command), result("ok")).changed)

    for command in ("sed -i s/a/b/ x", "cat > x.py <<E", "git apply p", "echo a | tee x", "mv a b"):
        assert changed(command) == 1, command
    for command in ("ls 2>/dev/null", "make 2>&1 | tail", "git diff", "cat x"):
        assert changed(command) == 0, command


def test_turns_are_those_with_calls_since_the_user_spoke() -> None:
    assert read(asked(), called("f"), result(), called("g"), result()).turns == 2
    assert read(asked(), called("f"), result(), asked(), called("g"), result()).turns == 1


def test_what_is_kept_of_results_has_a_bound() -> None:
    reading = read(*(message for at in range(2000) for message in (called("f", at=at), result(LONG))))
    assert reading.size < 100_000


words = st.sampled_from(["", "a b c d e f g h", LONG, '{"name": "f", "arguments": {}}', "<x>", "\ud800"])
values = st.none() | st.booleans() | st.integers() | st.floats() | words
calls = st.one_of(
    st.none(),
    st.just({}),
    st.just({"function": None}),
    st.builds(
        lambda name, arguments: {"function": {"name": name, "arguments": arguments}},
        st.sampled_from(["edit", "shell", "patch", "f", 3, None]),
        values | st.dictionaries(st.sampled_from(["path", "command", "x"]), values | st.lists(values)),
    ),
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "x"]), "content": st.none() | words},
    optional={"tool_calls": st.none() | st.lists(calls, max_size=4)},
)


@given(st.lists(messages, max_size=30), st.integers(0, 30))
def test_reading_in_two_parts_is_reading_at_once(conversation: list[dict[str, Any]], cut: int) -> None:
    whole, parts, tools = Reading(), Reading(), Tools(("f*",))
    whole.read(conversation, tools)
    parts.read(conversation[:cut], tools)
    parts.read(conversation[cut:], tools)
    assert whole == parts
