"""The rehearsal's own routes under /rehearsal/: journal, state, faults, models, reset."""

from dataclasses import asdict
from typing import Any

import orjson

from ollama_gate.rehearsal.catalogue import from_json
from ollama_gate.rehearsal.connection import Reply, Request
from ollama_gate.rehearsal.faults import KINDS, Fault
from ollama_gate.rehearsal.service import Service, canonical

PREFIX = "/rehearsal/"
_JSON = [("Content-Type", "application/json")]


async def control(service: Service, request: Request, reply: Reply) -> None:
    """Answer one control request."""
    status, value = await _answer(service, request)
    await reply.send(status, _JSON, orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


async def _answer(service: Service, request: Request) -> tuple[int, Any]:
    match request.method, request.path.removeprefix(PREFIX):
        case "GET", "journal":
            return 200, [entry.as_json() for entry in service.journal]
        case "GET", "state":
            return 200, service.scheduler.state()
        case "GET", "faults":
            return 200, {"active": [asdict(fault) for fault in service.faults.active], "kinds": KINDS}
        case "POST", "faults":
            return await _add_faults(service, request)
        case "POST", "models":
            return await _add_models(service, request)
        case "POST", "reset":
            service.reset()
            return 200, {"reset": True}
        case _:
            return 404, {"error": "there are journal, state, faults, models and reset under /rehearsal/"}


async def _add_faults(service: Service, request: Request) -> tuple[int, Any]:
    """Add faults: an object, or a list of them, with the fields of `Fault`."""
    try:
        given = orjson.loads(await request.body())
        faults = [Fault(**one) for one in (given if isinstance(given, list) else [given])]
    except (ValueError, TypeError) as wrong:
        return 400, {"error": str(wrong)}
    service.faults.active += faults
    return 200, {"active": [asdict(fault) for fault in service.faults.active]}


async def _add_models(service: Service, request: Request) -> tuple[int, Any]:
    """Install models: a list of objects with the fields of `Model`."""
    try:
        models = from_json(await request.body())
    except ValueError as wrong:
        return 400, {"error": str(wrong)}
    service.models |= {canonical(model.name): model for model in models}
    return 200, {"installed": [model.name for model in models]}
