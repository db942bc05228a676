"""A reader of the dashboard: one page of a browser, and what happens on it."""

import json
from typing import Any
from urllib.parse import urlsplit

from tests.daemon import wait_until

ALONE = "delete window.SharedWorker"
"""As in browsers that have none: the page has a stream of its own, which a test can replace."""
WATCHED = "window.violations = []; addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective));"


class Visit:
    def __init__(self, context: Any, url: str, route: str, *, alone: bool = False, key: str = "") -> None:
        """`alone`: without a shared worker. `key`: as if the reader had given it before."""
        self.context = context
        self.url = url
        self.problems: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        """Parts of messages that are expected."""
        context.add_init_script(WATCHED)
        if alone:
            context.add_init_script(ALONE)
        if key:
            context.add_init_script(f"sessionStorage.setItem('wakeful.key', {json.dumps(key)})")
        context.route(lambda there: urlsplit(there).netloc != urlsplit(url).netloc, self._foreign)
        self.page = self.another(route)

    def another(self, route: str = "#/") -> Any:
        """One more tab."""
        page = self.context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.goto(f"{self.url}/ui/{route}")
        return page

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _foreign(self, route: Any) -> None:
        self.problems.append(f"foreign: {route.request.url}")
        route.abort()

    def check(self) -> None:
        for page in self.context.pages:
            self.problems += [f"policy: {violation}" for violation in page.evaluate("window.violations")]
        problems = [text for text in self.problems if not any(part in text for part in self.forgiven)]
        assert not problems, problems

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def see(self, selector: str, text: str | None = None) -> Any:
        """The first element of that kind, with that text in it, once it is there to be seen."""
        found = self.page.locator(selector)
        found = (found.filter(has_text=text) if text is not None else found).first
        found.wait_for()
        return found

    def live(self, page: Any = None) -> None:
        (page or self.page).locator("[data-test=stream]").filter(has_text="live").wait_for()

    def go(self, route: str) -> None:
        self.page.evaluate("(route) => { location.hash = route }", route)

    def row(self, model: str, state: str | None = None) -> Any:
        """Of the table of models; once it is in that state."""
        return self.see(f"tr[data-model={json.dumps(model)}]" + (f"[data-state={state}]" if state else ""))

    def module(self, name: str, expression: str, *arguments: Any) -> Any:
        """The value of an expression, in which `m` is a module of the page and `a` are the arguments."""
        script = f"""async ([name, a]) => {{
            const m = await import(document.querySelector("script[type=module]").src.replace("app.js", name));
            return {expression}; }}"""
        return self.page.evaluate(script, [name, list(arguments)])

    def until(self, condition: Any, what: str) -> None:
        """Poll the page. The limit only ends a test that would hang."""
        wait_until(condition, what, 60.0)
