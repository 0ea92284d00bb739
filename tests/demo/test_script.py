"""What the demo model says: prose, JSON and tool calls made of the prompt's own words."""

import json
import re

from agentruns.demo import MARK
from tests.demo.conftest import TASK

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "grade": {"type": "string", "enum": ["good", "bad"]},
        "score": {"type": "integer", "minimum": 3, "maximum": 5},
        "source": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "points": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/point"}},
    },
    "required": ["title", "grade", "score", "source", "points"],
    "additionalProperties": False,
    "$defs": {
        "point": {
            "type": "object",
            "properties": {"text": {"type": "string", "maxLength": 12}, "sure": {"type": "boolean"}},
            "required": ["text", "sure"],
            "additionalProperties": False,
        }
    },
}


def test_a_report_is_made_of_its_parts_from_outline_to_review(shared):
    parts = shared.answer(f"List the parts of this report, one a line: {TASK}").output_text.splitlines()
    assert 3 <= len(parts) <= 5
    assert "heat pumps" in parts[0]
    assert parts[-1].endswith("(DEMO MODEL)")
    research = [shared.answer(f"What matters about {part}, for this task: {TASK}").output_text for part in parts]
    names = [part.removesuffix(" (DEMO MODEL)") for part in parts]
    assert all(name in text and MARK in text for name, text in zip(names, research, strict=True))
    headed = "\n\n".join(f"## {part}\n\n{text}" for part, text in zip(parts, research, strict=True))
    for told in (headed, "\n\n".join(research), str(research), json.dumps(research)):
        draft = shared.answer(f"Write the report as Markdown for this task: {TASK}\n\n{told}").output_text
        assert re.findall(r"^## (.+)$", draft, re.MULTILINE) == [*names, "Conclusion"], told
        assert draft.count("matters for") == len(names), "each section has what was found about it"
    review = shared.answer(f"Review this draft.\n\n{draft}").output_text
    assert all(f"“{name}”" in review for name in names)
    assert "Verdict" in review


def test_the_same_prompt_gets_the_same_answer(shared):
    assert shared.answer(TASK).output_text == shared.answer(TASK).output_text


def test_an_answer_to_a_schema_is_valid_json_of_that_shape(shared):
    shape = {"type": "json_schema", "name": "note", "strict": True, "schema": SCHEMA}
    made = json.loads(shared.answer(f"Judge this: {TASK}", text={"format": shape}).output_text)
    assert set(made) == set(SCHEMA["properties"])
    assert MARK in made["title"]
    assert made["grade"] in {"good", "bad"}
    assert made["score"] in {3, 4, 5}
    assert made["source"] is None
    assert len(made["points"]) >= 2
    assert all(set(point) == {"text", "sure"} and len(point["text"]) <= 12 for point in made["points"])


def test_each_tool_is_called_once_and_then_there_is_an_answer(shared):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "name": "weather", "parameters": parameters, "strict": True}]
    call = shared.answer("Weather: Copenhagen", tools=tools).output[-1]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Copenhagen"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "4 degrees, rain"}
    asked = [{"role": "user", "content": "Weather: Copenhagen"}, call.model_dump(exclude_none=True), result]
    assert "4 degrees, rain" in shared.answer(asked, tools=tools).output_text
