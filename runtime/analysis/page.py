"""One self-contained HTML page of a report: data, style and script in one file.

Nothing of a run becomes markup. The data is a JSON block in which every `<`, `>` and `&` is
escaped, the script writes texts as texts, and the page's own policy allows this one script and
this one style, by digest, and no connection at all.
"""

import base64
import hashlib
import html
from functools import cache
from pathlib import Path

from runtime.analysis.report import Report

_ASSETS = Path(__file__).parent / "assets"
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def render(report: Report) -> bytes:
    """The page, UTF-8."""
    data = report.model_dump_json()
    for character, escaped in _ESCAPES.items():
        data = data.replace(character, escaped)
    title = f"{report.run} · {report.kind} · Practicum"
    page = _template()
    # the data comes last, so that nothing in it is taken for a place of the template
    for place, text in (("%TITLE%", html.escape(title)), ("%DATA%", data)):
        page = page.replace(place, text, 1)
    return page.encode()


@cache
def policy() -> str:
    """The page's content security policy."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none';"
        f" script-src '{_digest('page.js')}'; style-src '{_digest('page.css')}'"
    )


@cache
def _template() -> str:
    """The page with style and script in place."""
    parts = {"%POLICY%": html.escape(policy()), "%STYLE%": _asset("page.css")}
    parts["%SCRIPT%"] = _asset("page.js")
    page = _asset("page.html")
    for place, text in parts.items():
        page = page.replace(place, text, 1)
    return page


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _digest(name: str) -> str:
    digest = hashlib.sha256(_asset(name).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
