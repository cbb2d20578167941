"""The gate's OpenAPI document, `/gate/openapi.json`: its own routes, and the guarded ones as it takes them.

The routes, their fields and the rights that they take are read from the tables that serve them, so that the document
cannot promise a route that there is not. What a field means on a guarded route is the dialect's matter, and said only
as far as the gate looks at it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ollama_gate.access.keys import Right
from ollama_gate.dialects import anthropic, responses
from ollama_gate.dialects.lane import Lane
from ollama_gate.routes import LANES, right_for

VERSION: Final = "3.1.0"
_JSON: Final = "application/json"
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer"}
_FLAG: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}
_OBJECTS: Final = {"type": "array", "items": _OBJECT}
_TEXT_OR_TEXTS: Final = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_FIELDS: Final[Mapping[str, Any]] = {
    "model": {"type": "string", "description": "A model's name, as Ollama takes it."},
    "messages": {"type": "array", "items": {"type": "object", "required": ["role"], "properties": {"role": _TEXT}}},
    "tools": _OBJECTS,
    "options": _OBJECT,
    "stream": _FLAG,
    "format": {"anyOf": [_TEXT, _OBJECT]},
    "max_tokens": _WHOLE,
    "max_completion_tokens": _WHOLE,
    "max_output_tokens": _WHOLE,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "seed": _WHOLE,
    "images": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
    "suffix": _TEXT,
    "template": _TEXT,
    "dimensions": _WHOLE,
}
"""What the gate says of fields that it looks at; of others it says nothing."""
_BY_PATH: Final[Mapping[str, Mapping[str, Any]]] = {
    "/api/generate": {"prompt": _TEXT, "system": _TEXT},
    "/api/embeddings": {"prompt": _TEXT},
    "/api/embed": {"input": _TEXT_OR_TEXTS},
    "/v1/embeddings": {"input": _TEXT_OR_TEXTS},
    "/v1/completions": {"prompt": _TEXT_OR_TEXTS},
    responses.PATH: {"input": {"anyOf": [_TEXT, _OBJECTS]}, "instructions": _TEXT},
    anthropic.PATH: {"system": {"anyOf": [_TEXT, _OBJECTS]}},
}
_ERRORS: Final[Mapping[int, str]] = {
    400: "The prompt does not fit, or the request cannot be read.",
    401: "There are keys, and none that is good was sent.",
    403: "The key, or the place that the request comes from, may not do this.",
    404: "There is no such model, or nothing of that name.",
    405: "The method is not one that this path takes.",
    408: "The body came too slowly.",
    413: "More bytes, or more text, than the gate takes.",
    415: "A Content-Encoding that is not known.",
    429: "A quota of the key is used up; Retry-After says for how long.",
    500: "A fault of the gate, or of Ollama's.",
    502: "Ollama broke off before it answered.",
    503: "Ollama does not answer, or the queue is full; Retry-After says for how long.",
    504: "Ollama was silent for too long.",
}


def document(version: str) -> dict[str, Any]:
    """The whole document.

    Args:
        version: of the gate.
    """
    paths: dict[str, Any] = {}
    for path, operations in _OWN.items():
        paths[path] = {method: _own(path, method, operation) for method, operation in operations.items()}
    for path, lane in LANES.items():
        paths[path] = {"post": _guarded(path, lane)}
    counters = (
        (anthropic.COUNT_PATH, anthropic.FIELDS, "AnthropicError"),
        (responses.COUNT_PATH, responses.FIELDS, "OpenAIError"),
    )
    for path, fields, error in counters:
        counted = {"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": _WHOLE}}
        paths[path] = {
            "post": {
                "operationId": _name(path),
                "summary": "The tokens of the prompt that this body would make; nothing is run.",
                "tags": ["inference"],
                "requestBody": _body(_request(path, fields)),
                "responses": {"200": _answer(counted), **_errors(error)},
                **_security(right_for("POST", path)),
            }
        }
    return {
        "openapi": VERSION,
        "info": {
            "title": "ollama-gate",
            "version": version,
            "summary": "A guard in front of Ollama.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": "gate", "description": "What the gate tells of itself and counts."},
            {"name": "inference", "description": "Counted and judged before Ollama gets it. All else passes through."},
        ],
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": _SCHEMES},
    }


def _own(path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    known = {"operationId": _name(path), "tags": ["gate"], **operation}
    known["responses"] = {**operation["responses"], **_errors("NativeError", operation.get("responses", ()))}
    return {**known, **_security(right_for(method.upper(), path))}


def _guarded(path: str, lane: Lane) -> dict[str, Any]:
    error = {"native": "NativeError", "anthropic": "AnthropicError"}.get(lane.dialect, "OpenAIError")
    stream = "application/x-ndjson" if lane.dialect == "native" else "text/event-stream"
    body = _FORM if lane.form else _body(_request(path, lane.fields))
    content: dict[str, Any] = {_JSON: {"schema": _OBJECT}}
    if "stream" in lane.fields:
        content[stream] = {"schema": _TEXT}
    if lane.form:
        content["text/plain"] = {"schema": _TEXT}
    return {
        "operationId": _name(path),
        "summary": f"Inference in the dialect {lane.dialect}.",
        "tags": ["inference"],
        "requestBody": body,
        "responses": {"200": {"description": "Ollama's answer.", "content": content}, **_errors(error)},
        **_security(right_for("POST", path)),
    }


def _request(path: str, fields: Iterable[str]) -> dict[str, Any]:
    """The body of a route: fields that are not named here are taken, and passed on or left out."""
    base = path.removesuffix("/count_tokens").removesuffix("/input_tokens")
    own = _BY_PATH.get(base, {})
    known = {name: own.get(name, _FIELDS.get(name, {})) for name in sorted(fields) if not name.startswith("_")}
    return {"type": "object", "required": ["model"], "properties": known}


def _name(path: str) -> str:
    return path.strip("/").replace("/", "_").replace(".", "_").replace("{", "").replace("}", "")


def _body(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {_JSON: {"schema": schema}}}


def _answer(schema: Mapping[str, Any], what: str = "The answer.") -> dict[str, Any]:
    return {"description": what, "content": {_JSON: {"schema": schema}}}


def _errors(shape: str, but: Iterable[str] = ()) -> dict[str, Any]:
    """Every error in the shape of a dialect, except those that are described otherwise."""
    reference = {"$ref": f"#/components/schemas/{shape}"}
    return {str(status): _answer(reference, what) for status, what in _ERRORS.items() if str(status) not in set(but)}


def _security(right: Right) -> dict[str, Any]:
    """Which keys open a route, once there are any."""
    if right is Right.NOTHING:
        return {"security": []}
    note = {
        Right.USE: "Takes any key, once there are keys.",
        Right.COUNT: "Takes an admin key or one made with --count, once there are keys.",
    }.get(right, "Takes an admin key, once there are keys.")
    return {"security": [{}, *({name: []} for name in _SCHEMES)], "description": note}


_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic", "description": "The key as the password."},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_FORM: Final = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "model"],
                "properties": {
                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                    "model": _TEXT,
                    "response_format": _TEXT,
                    "language": _TEXT,
                    "prompt": _TEXT,
                },
            }
        }
    },
}
_PARTS: Final = {
    "type": "object",
    "required": ["messages", "tools", "template", "media"],
    "properties": dict.fromkeys(("messages", "tools", "template", "media"), _WHOLE),
}
_SCHEMAS: Final[Mapping[str, Any]] = {
    "NativeError": {
        "type": "object",
        "description": "Ollama's shape: the sentence is a string. The gate's own errors say more beside it.",
        "required": ["error"],
        "properties": {
            "error": _TEXT,
            "code": _TEXT,
            "type": _TEXT,
            "param": {"type": ["string", "null"]},
            "details": _OBJECT,
        },
    },
    "OpenAIError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type"],
                "properties": {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": {},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": _TEXT, "message": _TEXT},
            },
        },
    },
    "Health": {
        "type": "object",
        "required": ["live", "ready", "version", "upstream"],
        "properties": {
            "live": {"const": True},
            "ready": _FLAG,
            "version": _TEXT,
            "upstream": {"type": "object", "required": ["url", "up"], "properties": {"url": _TEXT, "up": _FLAG}},
        },
    },
    "Count": {
        "type": "object",
        "required": ["model", "tokens", "at_most", "rung", "parts"],
        "properties": {
            "model": _TEXT,
            "tokens": _WHOLE,
            "at_most": _WHOLE,
            "rung": {"enum": ["exact", "estimate", "bound"]},
            "parts": _PARTS,
            "why": _TEXT,
            "budget": _WHOLE,
            "window": _WHOLE,
            "reserve": _WHOLE,
            "room": _WHOLE,
            "share_of_budget": _NUMBER,
            "share_of_window": _NUMBER,
            "verdict": {"enum": ["admit", "compact", "refuse"]},
            "fits_window": _FLAG,
            "inputs": {"type": "array", "items": _WHOLE},
            "limit": _WHOLE,
            "limit_is": _TEXT,
            "over": {"type": "array", "items": _WHOLE},
            "compaction": {
                "type": "object",
                "required": ["on", "from", "outcome"],
                "properties": {
                    "on": _FLAG,
                    "from": _WHOLE,
                    "outcome": _TEXT,
                    "why": _TEXT,
                    **dict.fromkeys(
                        ("to", "at_most", "messages", "messages_after", "whole", "shortened_or_dropped"), _WHOLE
                    ),
                },
            },
        },
    },
}
_TEXT_OF_A_MODEL: Final = {"model": _TEXT, "text": _TEXT}
_OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "/gate/health": {
        "get": {
            "summary": "Whether the gate lives and Ollama answers.",
            "responses": {
                "200": _answer({"$ref": "#/components/schemas/Health"}, "Ollama answers."),
                "503": _answer({"$ref": "#/components/schemas/Health"}, "It does not, or nobody gets in."),
            },
        }
    },
    "/gate/health/live": {
        "get": {
            "summary": "Whether the gate itself runs.",
            "responses": {"200": _answer({"type": "object", "required": ["live", "version"]})},
        }
    },
    "/gate/metrics": {
        "get": {
            "summary": "Metrics in Prometheus' format.",
            "responses": {"200": {"description": "The metrics.", "content": {"text/plain": {"schema": _TEXT}}}},
        }
    },
    "/gate/status": {
        "get": {
            "summary": "Requests under way, memory and models.",
            "responses": {"200": _answer({"type": "object", "required": ["version", "requests", "memory", "models"]})},
        }
    },
    "/gate/": {
        "get": {
            "summary": "The status as a page.",
            "responses": {"200": {"description": "The page.", "content": {"text/html": {"schema": _TEXT}}}},
        }
    },
    "/gate/openapi.json": {
        "get": {"summary": "This document.", "responses": {"200": _answer({"type": "object", "required": ["openapi"]})}}
    },
    "/gate/count": {
        "post": {
            "summary": "The count of any inference body, its parts, and what the verdict would be; nothing is run.",
            "parameters": [
                {
                    "name": "route",
                    "in": "query",
                    "description": "The guarded route that the body is for; by its fields where it is absent.",
                    "schema": {"enum": [path for path, lane in LANES.items() if not lane.form]},
                },
                {
                    "name": "detail",
                    "in": "query",
                    "description": "What each message and tool takes, too.",
                    "schema": _TEXT,
                },
                {
                    "name": "compact",
                    "in": "query",
                    "description": "What compaction would make of it, too, where it is over its budget.",
                    "schema": _TEXT,
                },
            ],
            "requestBody": _body({"type": "object", "required": ["model"], "properties": {"model": _TEXT}}),
            "responses": {"200": _answer({"$ref": "#/components/schemas/Count"})},
        }
    },
    "/gate/tokenize": {
        "post": {
            "summary": "Ids and pieces of a text under a model's vocabulary.",
            "requestBody": _body({"type": "object", "required": ["model", "text"], "properties": _TEXT_OF_A_MODEL}),
            "responses": {
                "200": _answer({"type": "object", "required": ["model", "count", "ids", "pieces"]}, "The tokens.")
            },
        }
    },
    "/gate/chunk": {
        "post": {
            "summary": "A text cut into pieces that a model takes whole.",
            "requestBody": _body(
                {
                    "type": "object",
                    "required": ["model", "text"],
                    "properties": {
                        **_TEXT_OF_A_MODEL,
                        "max_tokens": {"type": "integer", "minimum": 1},
                        "overlap": {"type": "integer", "minimum": 0},
                    },
                    "additionalProperties": False,
                }
            ),
            "responses": {"200": _answer({"type": "object", "required": ["model", "count", "chunks"]}, "The chunks.")},
        }
    },
    "/gate/archive/search": {
        "get": {
            "summary": "Messages that were kept, by their words.",
            "parameters": [
                {"name": name, "in": "query", "schema": _TEXT}
                for name in ("q", "conversation", "role", "limit", "after")
            ],
            "responses": {"200": _answer({"type": "object", "required": ["matches"]}, "What was found.")},
        }
    },
    "/gate/archive/{hash}": {
        "get": {
            "summary": "One message that was kept.",
            "parameters": [{"name": "hash", "in": "path", "required": True, "schema": _TEXT}],
            "responses": {"200": _answer(_OBJECT, "The message.")},
        }
    },
}
