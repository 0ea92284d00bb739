"""The scripted answers: prose made of the prompt's own words. No AI; the same prompt always gets the same answer.

Five kinds of request are known by their first words: list parts, look into a part, write a report, review a draft,
and anything else. Every answer bears the mark of the demo.
"""

import re

from agentruns.demo import MARK
from agentruns.demo.faults import without_directives
from agentruns.demo.prompt import Prompt
from agentruns.demo.tokens import fraction

# A list is read line by line, so its mark may not be a line of its own: it would be taken for one more part.
MARK_IN_LINE = "(DEMO MODEL)"

KINDS = {
    "parts": r"\b(one (a|per) line|list (of )?(the |its )?(parts|sections|topics|steps))",
    "research": r"\b(what matters about|research|look into|find out about)\b",
    "report": r"\b((re)?write|draft)\b",
    "review": r"\b(review|criticise|critique|check this)\b",
}
# Words that carry no topic: they end a phrase, and a task's opening verb is no part of one.
STOP_WORDS = frozenset(
    """
    a about all also an and any are as at be best between but by can compare could describe do does each explain find
    first for from give good had has have how i if in into is it its kind let like list look main make may me more most
    must my need needs new no not of on one or our out please plan report research short should small so some summarise
    summarize task tell than that the their them then there these they this those to two up us use using versus very vs
    want was we were what when where which who why will with would write you your
    """.split()  # noqa: SIM905 - as text it can be read, as a list of strings it is forty lines
)

PARTS = (
    "Background on {}",
    "{} in practice",
    "Costs and limits of {}",
    "Risks around {}",
    "What to do next",
)
CLAIMS = (
    "Most of what follows depends on it",
    "It is the part that readers ask about first",
    "Earlier decisions are hard to undo once it is settled",
    "It is where the numbers differ most between sources",
)
DETAILS = (
    "Three things decide the outcome: who does the work, what it costs over its whole life, and how it fails.",
    "Look at the ordinary case before the exceptions; the exceptions rarely change the conclusion.",
    "The usual figures come from a few sources, so they should be compared before one is quoted.",
    "What is cheap at the beginning is often what has to be paid for later.",
)
REMARKS = (
    "says what matters; give one number with its source.",
    "is clear; its second sentence could be shorter.",
    "needs an example that a reader can check.",
    "fits the task; tie it to the conclusion.",
)


def answer(prompt: Prompt) -> str:
    """The text that answers the prompt's last question."""
    question = unmarked(without_directives(prompt.question))
    if prompt.results:
        return signed(
            f"{about(question)}: the tools answered.\n\n"
            + "\n".join(f"> {short(each, 300)}" for each in prompt.results)
        )
    kind = kind_of(question)
    if kind == "parts":
        return parts(question)
    if kind == "research":
        return signed(research(question))
    if kind == "report":
        return signed(report(question))
    if kind == "review":
        return signed(review(question))
    return signed(reply(question))


def kind_of(question: str) -> str:
    """By the earliest telling words near the beginning; what is quoted further down may say anything."""
    head = question[:200].lower()
    found = {kind: match.start() for kind, words in KINDS.items() if (match := re.search(words, head))}
    return min(found, key=lambda kind: found[kind]) if found else "reply"


def parts(question: str) -> str:
    """Three to five lines, each a part of the report."""
    task = task_of(question)
    named = phrases(task) or [about(task)]
    number = 3 + int(fraction("parts", task) * 3)
    chosen = [*PARTS[: number - 1], PARTS[-1]]
    lines = [capital(line.format(named[place % len(named)])) for place, line in enumerate(chosen)]
    return "\n".join(lines) + f" {MARK_IN_LINE}"


def research(question: str) -> str:
    """Two or three paragraphs that begin with the part's name."""
    part, task = part_of(question), about(task_of(question))
    named = phrases(task_of(question)) or [task]
    paragraphs = [
        f"**{part}** matters for “{task}”. {pick(CLAIMS, part)}, and it bears on {named[-1]} as much as on {named[0]}.",
        pick(DETAILS, part + task),
        f"For this task, begin with {named[0]}: note what is known, what is assumed, and what “{part}” leaves open.",
    ]
    return "\n\n".join(paragraphs[: 2 + round(fraction("length", part))])


def report(question: str) -> str:
    """A Markdown report with a section for each part that the prompt mentions."""
    task = about(task_of(question))
    sections = sections_of(question) or {
        line.format(phrase): "" for line, phrase in zip(PARTS, phrases(task), strict=False)
    }
    opening = f"This report answers “{task}”. Its parts: {', '.join(sections)}."
    written = [f"# {capital(task)}", opening]
    for heading, body in sections.items():
        written += [
            f"## {heading}",
            short(body, 600) or f"{heading}: {pick(CLAIMS, heading).lower()}. {pick(DETAILS, heading)}",
        ]
    return "\n\n".join([*written, "## Conclusion", f"On “{task}”: {pick(DETAILS, task)}"])


def review(question: str) -> str:
    """A remark on each heading of the draft, and a verdict."""
    headings = list(sections_of(question)) or phrases(question)[:5]
    remarks = [f"- “{heading}” {pick(REMARKS, heading)}" for heading in headings]
    words = len(question.split())
    verdict = f"Verdict: ready to publish once the remarks above are dealt with ({len(remarks)} in {words} words)."
    return "\n".join([*remarks, "", verdict])


def reply(question: str) -> str:
    named = ", ".join(phrases(question)[:4]) or "nothing in particular"
    return (
        f"You asked: “{short(question, 200)}”\n\nA real model would answer here, on: {named}. {pick(DETAILS, question)}"
    )


# --- reading the prompt ---


def unmarked(text: str) -> str:
    """The text without the demo's own marks, and with the line ends that a quoted Python or JSON list has as `\\n`."""
    if text.count("\\n") > text.count("\n"):
        text = text.replace("\\n", "\n")
    return re.sub(rf"[_ ]*(?:{re.escape(MARK_IN_LINE)}|{re.escape(MARK)})_*", "", text)


def task_of(question: str) -> str:
    """What follows `task:`, else what follows the first colon of the first line, else the first line."""
    if found := re.search(r"\btask:\s*(.+)", question, re.IGNORECASE):
        return found[1].strip()
    first = question.strip().partition("\n")[0]
    before, colon, after = first.partition(": ")
    return after.strip() if colon and len(before) < 120 and after.strip() else first


def part_of(question: str) -> str:
    """The part that a research prompt names."""
    found = re.search(r"(?:what matters about|research|look into|find out about)\s+(.+)", question, re.IGNORECASE)
    named = found[1] if found else question
    named = re.split(r",? for this task\b|\?|\n|,? for the task\b", named)[0]
    return short(named.strip(" .:“”\"'"), 80) or "This part"


def sections_of(text: str) -> dict[str, str]:
    """What stands under each Markdown heading below the first level; with no heading, after each bold name."""
    pieces = re.split(r"^[^\w#]{0,8}#{2,6} +(.+?) *$", text, flags=re.MULTILINE)
    if len(pieces) == 1:
        pieces = re.split(r"^[^\w*]{0,8}(?=\*\*(.+?)\*\*)", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if heading != "Conclusion" and not found.get(heading):
            found[heading] = re.sub(r"^#.*$", "", body, flags=re.MULTILINE).strip(" \n'\",[]")
    return found


def phrases(text: str) -> list[str]:
    """Runs of up to three topical words, in order, each once: what the text is about."""
    found: list[str] = []
    for clause in re.split(r"[^\w\s'’-]+", text[:2000]):
        run: list[str] = []
        for word in [*clause.split(), "and"]:
            if word.lower() in STOP_WORDS or len(run) == 3:
                found.append(" ".join(run))
                run = []
            if word.lower() not in STOP_WORDS:
                run.append(word)
    return [phrase for phrase in dict.fromkeys(found) if len(phrase) > 2][:12]


def about(task: str) -> str:
    return short(task.strip().partition("\n")[0].strip(" .?!"), 90) or "an empty task"


# --- words ---


def short(text: str, length: int) -> str:
    """At most `length` characters, cut at a word."""
    text = text.strip()
    return text if len(text) <= length else text[:length].rsplit(" ", 1)[0] + " …"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def pick(choices: tuple[str, ...], seed: str) -> str:
    return choices[int(fraction("pick", seed) * len(choices))]


def signed(text: str) -> str:
    return f"{text}\n\n_{MARK}_"
