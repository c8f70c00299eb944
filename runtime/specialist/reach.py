"""What the deployed model can reach: files, documents, hosts; and what is kept from it."""

import posixpath
import re
from collections.abc import Iterator, Mapping

from runtime.specialist import mentions
from specs.model_spec import ModelSpec


class Reach:
    """What the deployed model can reach, asked by name."""

    def __init__(self, spec: ModelSpec) -> None:
        self._workdir = spec.deployment.workdir
        self._network = spec.deployment.network
        self._exact = {self._full(one.path) for one in spec.resources if one.kind != "document"}
        self._exact |= {one.path for one in spec.resources if one.kind == "document"}
        self._folders = tuple(
            f"{self._full(one.path)}/" for one in spec.resources if one.path.endswith("/")
        )
        self._names = {posixpath.basename(path) for path in self._exact}
        self._roots = {path.split("/")[1] for path in self._exact if path.startswith("/")}
        self._withheld: Mapping[str, re.Pattern[str]] = {
            one.name: mentions.whole_word(one.name) for one in spec.withheld
        }

    def host(self, name: str) -> bool:
        """Whether a host can be reached."""
        if self._network == "any" or name in ("localhost", "127.0.0.1", "::1"):
            return True
        return self._network != "none" and name in self._network

    def withheld_in(self, text: str) -> Iterator[str]:
        """Withheld names that stand in a text."""
        for name, pattern in self._withheld.items():
            if pattern.search(text):
                yield name

    def missing_absolute(self, text: str) -> Iterator[str]:
        """Paths from the root that nothing covers, each once."""
        for path in dict.fromkeys(mentions.absolute_paths(text, self._roots)):
            if not self._covers(path):
                yield path

    def missing(self, text: str, given: str, *, acting: bool) -> Iterator[str]:
        """Files and documents named by a target that nothing covers, each once.

        A relative name that the conversation has brought up before is not the row's invention.
        `acting`: the text is a command, so that every file name counts; otherwise those that
        the reader is sent to.
        """
        yield from self.missing_absolute(text)
        named = mentions.file_names(text) if acting else mentions.documents_sent_to(text)
        for name in dict.fromkeys(named):
            known = posixpath.basename(name) in self._names or name in given
            if not known and not self._covers(name):
                yield name

    def _covers(self, path: str) -> bool:
        full = self._full(path)
        return (
            path in self._exact
            or full in self._exact
            or full in self._folders
            or full.startswith(self._folders)
            or f"{full}/" in self._folders
        )

    def _full(self, path: str) -> str:
        if path.startswith("~"):
            return path
        return posixpath.normpath(posixpath.join(self._workdir, path))
