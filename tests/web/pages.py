"""The pages as a person sees them in a browser: what is on them, and what can be done there."""

from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urljoin

from playwright.sync_api import Browser, Locator, Page, Response, expect


class Site:
    """A window on agentruns: signs in, opens pages, and keeps what the console complains of.

    site = Site(browser, "http://127.0.0.1:8000"); site.sign_in("ada", "…"); run = site.runs().start("Tides")
    """

    def __init__(self, browser: Browser, url: str, *, width: int = 1440, theme: Any = "light", js: bool = True) -> None:
        self.url = url
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=js
        )
        self.complaints: list[str] = []
        self.context.on("console", lambda said: self._note(said.type, said.text))
        self.context.on("weberror", lambda error: self._note("error", str(error.error)))
        self.page = self.context.new_page()
        self.polls: list[Response] = []
        self.context.on("response", lambda answer: self.polls.append(answer) if "/live" in answer.url else None)

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    def close(self) -> None:
        self.context.close()

    def open(self, path: str) -> Page:
        self.page.goto(urljoin(self.url, path))
        return self.page

    def sign_in(self, name: str, password: str) -> None:
        self.open("/login/")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.locator("form.login button").click()
        expect(self.page.locator("nav[aria-label=Main]")).to_be_visible()

    def runs(self, query: str = "") -> "RunsPage":
        return RunsPage(self).open(query)

    def run(self, run_id: Any, query: str = "") -> "RunPage":
        return RunPage(self).open(run_id, query)

    def poll(self) -> Response:
        """Asks at once instead of waiting for the pump; the answer."""
        with self.page.expect_response(lambda answer: "/live" in answer.url) as found:
            self.page.evaluate("dispatchEvent(new Event('focus'))")
        return found.value

    def until_changed(self) -> None:
        """Polls until something came that was drawn."""
        while self.poll().status != 200:
            pass
        expect(self.page.locator(".htmx-request")).to_have_count(0)


class RunsPage:
    """`/`: the form and the list."""

    def __init__(self, site: Site) -> None:
        self.site, self.page = site, site.page

    def open(self, query: str = "") -> Self:
        self.site.open(f"/{query}")
        return self

    @property
    def task(self) -> Locator:
        return self.page.get_by_label("What should it do?")

    @property
    def budget(self) -> Locator:
        return self.page.get_by_label("Stop at cost, USD")

    def choose(self, plan: str) -> Self:
        """The plan by its name."""
        self.page.locator(f"#plan-{plan}").check()
        return self

    def steps_of(self, plan: str) -> list[str]:
        """Titles of the plan's steps, as far as they are shown."""
        shown = self.page.locator(f".plan:has(#plan-{plan}) li b")
        return [title.inner_text() for title in shown.all() if title.is_visible()]

    def fill(self, task: str, budget: str = "") -> Self:
        self.task.fill(task)
        self.budget.fill(budget)
        return self

    def press_start(self) -> None:
        self.page.get_by_role("button", name="Start run").click()

    def start(self, task: str, *, plan: str = "", budget: str = "") -> "RunPage":
        """Fills the form and presses Start; the page of the run that it leads to."""
        if plan:
            self.choose(plan)
        self.fill(task, budget).press_start()
        self.page.wait_for_url("**/runs/*/**")
        return RunPage(self.site)

    def error(self, field: str) -> str:
        return self.page.locator(f"#{field}-error").inner_text()

    @property
    def titles(self) -> list[str]:
        return self.page.locator("table.runs .ttl").all_inner_texts()

    @property
    def newer(self) -> Locator:
        return self.page.locator(".newer a")


class RunPage:
    """`/runs/<id>/`."""

    def __init__(self, site: Site) -> None:
        self.site, self.page = site, site.page

    def open(self, run_id: Any, query: str = "") -> Self:
        self.site.open(f"/runs/{run_id}/{query}")
        return self

    @property
    def id(self) -> str:
        return self.page.url.split("/runs/")[1].split("/")[0]

    @property
    def status(self) -> str:
        """The word on the pill."""
        return self.page.locator("#head .st").inner_text()

    def until_status(self, word: str, seconds: float = 30) -> Self:
        expect(self.page.locator("#head .st")).to_contain_text(word, timeout=seconds * 1000)
        return self

    def row(self, path: str) -> Locator:
        """The table's row of a step."""
        return self.page.locator(f'tr[data-path="{path}"]')

    @property
    def steps(self) -> dict[str, str]:
        """path: status of the steps listed, in order."""
        script = "rows => rows.map(row => [row.dataset.path, row.dataset.status])"
        return dict(self.page.locator("tr[data-path]").evaluate_all(script))

    def until_steps(self, are: Callable[[dict[str, str]], bool], what: str, seconds: float = 30) -> Self:
        """Waits, by the page's own polls, until its steps are so."""
        for _ in range(int(seconds * 5)):
            if are(self.steps):
                return self
            self.page.wait_for_timeout(200)
        raise AssertionError(f"after {seconds:g} s still not: {what}; the page shows {self.steps}")

    def open_step(self, path: str) -> Self:
        self.row(path).locator("a").first.click()
        expect(self.page.locator("#step")).to_contain_text(path)
        return self

    @property
    def output(self) -> str:
        return self.page.locator("#output").inner_text()

    @property
    def cost(self) -> str:
        """What the run has cost so far, as "$0.0123"."""
        return self.page.locator("#figures dd").first.inner_text().split()[0]

    @property
    def is_polling(self) -> bool:
        return self.page.locator("#live[data-live]").count() > 0

    def press_cancel(self) -> Locator:
        """Opens the dialog that names what a cancel does."""
        self.page.locator("#cancel").click()
        dialog = self.page.locator("dialog#ask")
        expect(dialog).to_be_visible()
        return dialog

    def cancel(self) -> Self:
        self.press_cancel().get_by_role("button", name="Cancel the run").click()
        expect(self.page.locator("#cancel")).to_have_count(0)
        return self
