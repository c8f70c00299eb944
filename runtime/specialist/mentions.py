"""What a text names: files and documents, hosts, tools. Pure pattern work, and no more than that.

Only what is meant as a name is taken, so that prose about paths in general stays prose:

* a path from the root or the home, whose first folder is one that Linux has, or one that the
  specification names;
* a file name with the ending of a document or a program, in a call or behind words that send
  the reader there ("see handbook.md", "according to `limits.md`");
* a tool in the notation of calls (`<invoke name=…>`, `{"name": …, "arguments": …}`), by an MCP
  name, or quoted beside the word "tool".
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

_ROOTS = re.compile(
    "app|bin|boot|data|dev|etc|home|lib|lib64|logs|media|mnt|opt|proc|root|run|sbin|solution|srv"
    "|sys|tests|tmp|usr|var|work|workspace"
)
_ALWAYS = re.compile(r"/dev/(null|std(in|out|err)|tty|zero|urandom)|(/usr(/local)?)?/s?bin/.+")
"""Paths that every Linux has."""
_ENDINGS = (
    "c|cfg|conf|cpp|csv|db|docx|env|go|h|html|ini|ipynb|java|js|json|jsonl|log|md|mdx|parquet|pdf"
    "|py|rb|rs|rst|sh|sql|sqlite|toml|ts|tsv|txt|xlsx|xml|yaml|yml"
)
_NAME = rf"[\w@+-][\w.@+-]*(?:/[\w.@+-]+)*\.(?:{_ENDINGS})"
_ABSOLUTE = re.compile(r"(?<![\w/.:$}~*-])(?!(?<=<)/[\w.-]*>)~?/[\w@+-][\w.@+/-]*")
"""A path, and no closing tag."""
_RELATIVE = re.compile(rf"(?<![\w/.:$*-])(?:\./)?{_NAME}(?![\w/*-])")
_SENDS = re.compile(
    r"\b(?:see|refer(?:ring)? to|according to|consult|open|read(?:ing)?|check|look (?:at|in)|"
    r"(?:described|documented|shown|stated|explained|listed) in|(?:in|from) the (?:file|document))"
    rf"\s+(?:the\s+)?(?:file\s+|document\s+|page\s+)?[`\"'(\[]*((?:\./)?{_NAME})(?![\w/])",
    re.IGNORECASE,
)
_URL = re.compile(r"\b(?:https?|ftp|wss?|git|ssh)://[^\s\"'`<>()\[\]{}|]+", re.IGNORECASE)
_TOOLS = (
    re.compile(r"<(?:\w+:)?invoke\s+name=[\"']([\w.:-]+)[\"']"),
    re.compile(r"<function=([\w.:-]+)>"),
    re.compile(r"\{\s*\"name\"\s*:\s*\"([\w.:-]+)\"\s*,\s*\"(?:arguments|parameters)\"\s*:"),
    re.compile(r"\b(mcp__\w+?__\w+)"),
    re.compile(r"[`\"']([A-Za-z_][\w.:-]*)[`\"']\s+(?:tool|function call)\b", re.IGNORECASE),
    re.compile(r"\b(?:the|a) tool\s+[`\"']([A-Za-z_][\w.:-]*)[`\"']", re.IGNORECASE),
    re.compile(r"\b(?:the|with|use|using|call|calling)\s+([A-Za-z]\w*_\w+)\s+tool\b"),
)


def absolute_paths(text: str, roots: Iterable[str] = ()) -> Iterator[str]:
    """Paths from the root or the home, normalised, without those that every Linux has.

    `roots` are further first folders that count as such.
    """
    known = frozenset(roots)
    for match in _ABSOLUTE.finditer(_URL.sub(" ", text)):
        path = match[0].rstrip(".,:")
        first = path.split("/")[1]
        if not (path.startswith("~") or first in known or _ROOTS.fullmatch(first)):
            continue
        path = posixpath.normpath(path) + ("/" if path.endswith("/") else "")
        if not _ALWAYS.fullmatch(path):
            yield path


def file_names(text: str) -> Iterator[str]:
    """Relative names with a known ending, wherever they stand."""
    for match in _RELATIVE.finditer(_URL.sub(" ", text)):
        yield match[0].removeprefix("./")


def documents_sent_to(text: str) -> Iterator[str]:
    """Relative names that the text sends its reader to."""
    for match in _SENDS.finditer(text):
        yield match[1].removeprefix("./")


def hosts(text: str) -> Iterator[str]:
    """Hosts of the addresses in a text."""
    for match in _URL.finditer(text):
        try:
            host = urlsplit(match[0]).hostname
        except ValueError:
            continue  # no address after all, such as one with half a bracket
        if host:
            yield host


def tools(text: str) -> Iterator[str]:
    """Names that are used as tools in a text."""
    for pattern in _TOOLS:
        for match in pattern.finditer(text):
            yield match[1]


def whole_word(name: str) -> re.Pattern[str]:
    """Finds a name that is no part of a longer one; of a folder's `…/`, all below it."""
    behind = "" if name.endswith("/") else r"(?![\w-])"
    return re.compile(rf"(?<![\w-]){re.escape(name)}{behind}", re.IGNORECASE)
