from ollama_gate.wire import sse


def test_a_nameless_event_is_one_data_line() -> None:
    assert sse.data(b'{"a":1}') == b'data: {"a":1}\n\n'


def test_a_named_event_has_its_name_first() -> None:
    assert sse.event("message_stop", b"{}") == b"event: message_stop\ndata: {}\n\n"


def test_a_comment_is_no_event() -> None:
    assert sse.comment("keep-alive") == b": keep-alive\n\n"


def test_the_end_mark_is_openais() -> None:
    assert sse.data(b"[DONE]") == sse.DONE
