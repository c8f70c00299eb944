"""The page stands alone, shows the run, and nothing that a run wrote can become part of it."""

import base64
import hashlib
import re
import shutil
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime.analysis.page import render
from tests.runtime.analysis.sample import sample

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

HOSTILE = (
    '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=2">'
    "<svg onload=window.pwned=3>\"'`&amp;]]>--><!--\u2028%DATA%%SCRIPT%"
)


class Tags(HTMLParser):
    """Counts elements, and keeps whatever could load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.suspicious: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.suspicious += [n for n, _ in attrs if n.startswith("on") or n in ("src", "href")]


def test_text_of_a_run_never_becomes_markup() -> None:
    plain, hostile = Tags(), Tags()
    plain.feed(render(sample()).decode())
    hostile.feed(render(sample(HOSTILE)).decode())
    assert hostile.counts == plain.counts
    assert hostile.counts["script"] == 2
    assert hostile.suspicious == plain.suspicious == []


def test_the_page_allows_its_own_script_and_style_alone() -> None:
    page = render(sample()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;")
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy[1]
    rest = re.sub(r'<script id="data".*?</script>', "", page, flags=re.DOTALL)
    assert re.findall(r"\w+://[\w./]+|url\(|@import", rest) == ["http://www.w3.org/2000/svg"]


# --- in a real browser -----------------------------------------------------------------------

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


@pytest.fixture
async def browser() -> AsyncIterator["Browser"]:
    api = pytest.importorskip("playwright.async_api", reason="needs playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("needs chromium")
    async with api.async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=120_000
        )
        yield started
        await started.close()


async def opened(browser: "Browser", page: bytes, folder: Path) -> "tuple[Page, list[str]]":
    """The page in the browser, and whatever went wrong or was asked for elsewhere."""
    file = folder / "report.html"
    file.write_bytes(page)
    tab = await browser.new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(120_000)
    noticed: list[str] = []
    tab.on("pageerror", lambda error: noticed.append(f"error: {error}"))
    tab.on("console", lambda said: noticed.append(f"console: {said.text}"))
    tab.on("dialog", lambda dialog: noticed.append(f"dialog: {dialog.message}"))
    tab.on("request", lambda request: noticed.append(f"request: {request.url}"))
    await tab.goto(file.as_uri())
    await tab.wait_for_selector("html[data-drawn]")
    await tab.wait_for_selector(".tok")
    own = f"request: {file.as_uri()}"
    return tab, [one for one in noticed if one != own]


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_a_browser_draws_every_section_and_loads_nothing(
    browser: "Browser", tmp_path: Path
) -> None:
    tab, noticed = await opened(browser, render(sample()), tmp_path)
    assert noticed == []
    found: Any = await tab.evaluate("[...document.querySelectorAll('section')].map(s => s.id)")
    assert found == ["curves", "groups", "timeline", "lineage", "trials", "pinned"]
    assert await tab.locator("#groups .cell").count() == 12
    assert await tab.locator("#lineage .node").count() == 4
    assert await tab.locator("#timeline rect").count() == 14
    assert await tab.locator("#transcript .call").count() == 2

    async def background(which: int) -> str:
        script = "node => getComputedStyle(node).backgroundColor"
        return str(await tab.locator(".tok").nth(which).evaluate(script))

    weighed, unmoved = await background(1), await background(6)
    assert weighed.startswith("rgba(")
    assert unmoved == "rgba(0, 0, 0, 0)"
    await tab.get_by_label("surprise").check()
    assert await background(6) != unmoved
    await tab.locator(".tok").nth(1).hover()
    tip = await tab.locator("#tip").inner_text()
    assert '" wor"' in tip
    assert "place 4 of the sequence" in tip
    assert "log-prob -0.1" in tip
    await tab.locator("#groups .cell").nth(4).click()
    assert "not on this page" in await tab.locator("#transcript").inner_text()
    await tab.get_by_placeholder("Filter").fill("task-1")
    assert await tab.locator(".row:visible").count() == 6


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_a_browser_runs_nothing_that_a_run_wrote(browser: "Browser", tmp_path: Path) -> None:
    tab, noticed = await opened(browser, render(sample(HOSTILE)), tmp_path)
    assert noticed == []
    assert await tab.evaluate("window.pwned") is None
    assert await tab.locator("img").count() == 0
    assert await tab.locator("script").count() == 2
    shown = await tab.locator("#transcript").inner_text()
    assert '<img src=x onerror="window.pwned=2">' in shown
