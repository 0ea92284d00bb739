"""A tool: a function that a model may ask for, by a schema from its signature; what it sends is checked."""

import inspect
import json
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, get_type_hints, overload

from agentruns.errors import PlanError
from agentruns.plan import name_of

RESULT_CHARACTERS = 100_000


class BadArguments(Exception):
    """What the model sent does not fit the tool; the message is its result, so that it can do better."""


class Tool:
    """A function marked with `@tool`. A first parameter called `ctx` is handed a ctx of the call's own."""

    def __init__(self, fn: Callable[..., Any], name: str | None = None, *, trusted: bool = False) -> None:
        self.fn, self.trusted = fn, trusted
        self.name = name_of(name if name is not None else fn.__name__, "tool").replace(".", "_")
        self.description = inspect.cleandoc(fn.__doc__ or "")
        if not self.description:
            raise PlanError(f"The tool {self.name!r} has no docstring: the model knows it by that alone. Give it one.")
        parameters = list(inspect.signature(fn).parameters.values())
        self.takes_ctx = bool(parameters) and parameters[0].name == "ctx"
        self.arguments = arguments_of(self.name, fn, parameters[self.takes_ctx :])
        update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def declared(self) -> dict[str, Any]:
        """As the Responses API has it."""
        schema = self.arguments.model_json_schema()
        return {"type": "function", "name": self.name, "description": self.description, "parameters": schema}

    def parsed(self, text: str) -> dict[str, Any]:
        """The arguments, from the JSON that the model sent. Raises BadArguments."""
        try:
            sent = json.loads(text or "{}")
            values = self.arguments.model_validate(sent, strict=True)
        except ValueError as error:
            raise BadArguments(f"The arguments do not fit {self.name}: {str(error)[:1000]}") from None
        return {name: getattr(values, name) for name in type(values).model_fields}

    def run(self, ctx: Any, values: dict[str, Any]) -> str:
        """Its result as a text for the model."""
        found = self.fn(ctx, **values) if self.takes_ctx else self.fn(**values)
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
        if len(text) > RESULT_CHARACTERS:
            return f"{text[:RESULT_CHARACTERS]}\n[{len(text) - RESULT_CHARACTERS:,} more characters are cut off]"
        return text


def arguments_of(name: str, fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> Any:
    """A pydantic model of the function's parameters: every one needs a type, none may be unnamed."""
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(fn)
    fields: dict[str, Any] = {}
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY) or one.name not in hints:
            raise PlanError(f"The tool {name!r}: give its parameter {one.name!r} a name and a type.")
        fields[one.name] = (hints[one.name], ... if one.default is one.empty else one.default)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str | None = None, trusted: bool = False) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Marks a function as a tool for `run_agent`. Its docstring and its parameters' types are what the model sees.

    `trusted`: what it returns did not come from outside (default: it did, and so gates effects that follow). Raises
    PlanError without a docstring or types.
    """
    if fn is not None:
        return Tool(fn)
    return lambda function: Tool(function, **options)
