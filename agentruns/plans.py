"""The plans that come with agentruns, written with nothing but the door."""

import re

from agentruns import Plan, step

WRITER = "You are a careful analyst. Write plainly; say what is uncertain."
MOST_PARTS = 6


def parts_of(text: str) -> list[str]:
    """The lines of an outline, without bullets, numbers and empty ones; at most six, each once."""
    lines = [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s*", "", line).strip() for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if line and not line.endswith(":")))[:MOST_PARTS]


@step
def outline(ctx):
    """Splits the task into parts, one a line."""
    answer = ctx.ask(
        f"List the parts of this report, one a line, without numbers: {ctx.task}",
        instructions=WRITER,
        max_output_tokens=1000,
    )
    return "\n".join(parts_of(answer)) or answer


@step
def research(ctx):
    """Looks into all parts at once, each on its own."""
    parts = ctx.prior["outline"].splitlines()
    found = ctx.map("part", look_into, parts)
    return "\n\n".join(f"## {part}\n\n{text}" for part, text in zip(parts, found, strict=True))


@step
def look_into(ctx, part):
    """What matters about one part."""
    return ctx.ask(f"What matters about {part}, for this task: {ctx.task}", instructions=WRITER, max_output_tokens=2000)


@step
def draft(ctx):
    """Writes the report from what was found."""
    return ctx.ask(
        f"Write the report as Markdown, one section for each part. The task: {ctx.task}\n\n{ctx.prior['research']}",
        instructions=WRITER,
        max_output_tokens=4000,
    )


@step
def review(ctx):
    """Checks the draft against the task and hands out the final text."""
    remarks = ctx.ask(
        f"Review this draft against the task: what is missing or wrong? The task: {ctx.task}\n\n{ctx.prior['draft']}",
        instructions=WRITER,
        max_output_tokens=2000,
    )
    return f"{ctx.prior['draft']}\n\n---\n\n## Reviewer's remarks\n\n{remarks}"


report = Plan(
    "report",
    [outline, research, draft, review],
    title="Researched report",
    budget="5.00",
    description="Splits a task into parts, looks into each, writes it up and reviews the draft.",
)
