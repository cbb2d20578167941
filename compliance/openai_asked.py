"""What the openai clients under test ask."""

from typing import Annotated

import pydantic
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
CALL: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": 'Please call tool weather with {"city": "Oslo", "days": 2}'}
]
PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS},
}
FUNCTION: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": PARAMETERS,
    "strict": False,
}
LONG = "The keeper of the ferry wrote down what came in and what went out. " * 3000
DIES = {"x-rehearsal-fault": "dies:after=3"}
CUT = {"x-rehearsal-fault": "cut:after=3"}


class Town(pydantic.BaseModel):
    """What structured output is asked for; bounded, because small models never end a text."""

    name: Annotated[str, pydantic.Field(max_length=12)]
    people: int
