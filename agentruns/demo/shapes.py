"""Scripted JSON: a value that is valid for a JSON schema, made of the prompt's words. For schemas and tool arguments.

The subset that structured outputs allow: objects, arrays, enum, const, anyOf, $ref, nullable types, and the bounds of
numbers, strings and arrays; a `pattern` is not honoured, `format` for dates and the like is.
"""

from typing import Any

from agentruns.demo.tokens import fraction

FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "demo@example.com",
    "hostname": "example.com",
    "uri": "https://example.com/demo",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
DEEPEST = 12


class Shaper:
    """Fills one schema. `phrases` are used up in turn; `mark` goes into the first free text, if there is one."""

    def __init__(self, schema: dict[str, Any], phrases: list[str], mark: str = "") -> None:
        self.schema = schema
        self.phrases = phrases or ["demo"]
        self.mark = mark
        self.used = 0

    def value(self) -> Any:
        return self.fill(self.schema, "value", 0)

    def fill(self, schema: Any, name: str, depth: int) -> Any:
        """A value for `schema`, which describes the property `name`."""
        if not isinstance(schema, dict) or depth > DEEPEST * 2:
            return None
        schema = self.resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][int(fraction(name, self.phrases[0]) * len(schema["enum"]))]
        kind = self.kind(schema, depth)
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self.array(schema, name, depth)
        if kind in {"integer", "number"}:
            return self.number(schema, name, whole=kind == "integer")
        if kind == "boolean":
            return fraction(name, self.phrases[0]) < 0.5
        return None if kind == "null" else self.text(schema)

    def resolved(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Follows $ref and takes one branch of anyOf: the first, or the last when it would go on for ever."""
        for _ in range(DEEPEST):
            if "$ref" in schema:
                target: Any = self.schema
                for key in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                    target = target.get(key, {}) if key else target
                schema = target
            elif branches := schema.get("anyOf") or schema.get("oneOf"):
                schema = branches[-1 if depth > DEEPEST else 0]
            elif len(schema.get("allOf") or []) == 1:
                schema = schema["allOf"][0]
            else:
                break
        return schema

    def kind(self, schema: dict[str, Any], depth: int) -> str:
        kinds = schema.get("type") or ("object" if "properties" in schema else "string")
        if isinstance(kinds, list):
            return "null" if depth > DEEPEST and "null" in kinds else next(kind for kind in [*kinds, "null"] if kind)
        return str(kinds)

    def object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required") or []
        properties = schema.get("properties") or {}
        # Deep down only what must be there, so that a schema that contains itself comes to an end.
        names = [name for name in properties if depth <= DEEPEST or name in required]
        return {name: self.fill(properties[name], name, depth + 1) for name in names}

    def array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 10)
        wanted = least if depth > 4 else min(max(3, least), most)
        return [self.fill(schema.get("items") or {}, name, depth + 1) for _ in range(wanted)]

    def number(self, schema: dict[str, Any], name: str, *, whole: bool) -> int | float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        low += 1 if "exclusiveMinimum" in schema else 0
        high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + 100))
        high -= 1 if "exclusiveMaximum" in schema and high - low > 1 else 0
        between = low + (high - low) * fraction(name, self.phrases[0])
        step = schema.get("multipleOf")
        if step:
            return -(-low // step) * step
        return int(between) if whole else round(between, 2)

    def text(self, schema: dict[str, Any]) -> str:
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        phrase = self.phrases[self.used % len(self.phrases)]
        self.used += 1
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if self.mark and most is None:
            phrase, self.mark = f"{phrase} ({self.mark})", ""
        while len(phrase) < least:
            phrase = f"{phrase} {phrase}"
        return phrase[:most] if most is not None else phrase
