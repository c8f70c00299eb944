"""Which programs a shell command would start, without starting any.

A reader of the commands that small agents write: words and quotes, pipes, lists, subshells,
redirections, loops, command and process substitution (also inside double quotes). What it does
not read (here-documents, `case`, functions, arithmetic) is an error, never a guess. A program
that another one starts by an argument of its own (`xargs`, `time`, `bash -c`) is not looked for.
"""

import re
from collections.abc import Callable

_SEPARATORS = "\n;|&()"
_STAYS = frozenset({"!", "{", "}", "then", "do", "else", "if", "elif", "while", "until"})
"""Words after which a command begins."""
_ENDS = frozenset({"fi", "done"})
_REFUSED = frozenset({"case", "esac", "function", "select", "coproc", "[["})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def programs(text: str) -> list[str]:
    """Names of the programs and builtins in the order in which they stand.

    Raises:
        ValueError: the text is no command that this reader understands.
    """
    found: list[str] = []
    _Scanner(text, found).run()
    return found


class _Scanner:
    """One pass over a command; substitutions are scanned by another one."""

    def __init__(self, text: str, found: list[str]) -> None:
        self._text, self._at, self._found = text, 0, found
        self._word: str | None = None
        self._plain = True
        """Nothing of the word was quoted."""
        self._command = True
        """The next word names a program."""
        self._target = False
        """The next word is where something is redirected to."""
        self._loop = False
        """Inside the head of a `for`."""

    def run(self) -> None:
        """Scan to the end."""
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            handler = _HANDLERS.get(char)
            if handler is None:
                self._add(char)
            else:
                handler(self, char)
        self._end_command()

    def blank(self, _: str) -> None:
        self._end_word()

    def separator(self, char: str) -> None:
        if char == "(" and (self._word is not None or self._text.startswith("(", self._at)):
            raise ValueError("a function, an array or arithmetic is not read")
        self._end_command()

    def comment(self, char: str) -> None:
        if self._word is not None:
            self._add(char)
            return
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def escape(self, _: str) -> None:
        following = self._text[self._at : self._at + 1]
        self._at += 1
        if following != "\n":
            self._add(following or "\\", plain=False)

    def single(self, _: str) -> None:
        end = self._text.find("'", self._at)
        if end < 0:
            raise ValueError("a single quote is not closed")
        self._add(self._text[self._at : end], plain=False)
        self._at = end + 1

    def double(self, _: str) -> None:
        self._add("", plain=False)
        while True:
            char = self._text[self._at : self._at + 1]
            self._at += 1
            match char:
                case "":
                    raise ValueError("a double quote is not closed")
                case '"':
                    return
                case "\\":
                    self._add(self._text[self._at : self._at + 1], plain=False)
                    self._at += 1
                case "$":
                    self.dollar(char)
                case "`":
                    self.backtick(char)
                case _:
                    self._add(char, plain=False)

    def dollar(self, char: str) -> None:
        if self._text.startswith("'", self._at):
            raise ValueError("quoting by $'…' is not read")
        self._add(char)
        if self._text.startswith("((", self._at):
            self._at = self._closing(self._at)
        elif self._text.startswith("(", self._at):
            self._substitution()
        elif self._text.startswith("{", self._at):
            end = self._text.find("}", self._at)
            if end < 0:
                raise ValueError("a brace is not closed")
            if "(" in self._text[self._at : end] or "`" in self._text[self._at : end]:
                raise ValueError("a substitution inside braces is not read")
            self._at = end + 1

    def backtick(self, _: str) -> None:
        end = self._text.find("`", self._at)
        if end < 0:
            raise ValueError("a backtick is not closed")
        self._found += programs(self._text[self._at : end])
        self._add("`", plain=False)
        self._at = end + 1

    def redirection(self, char: str) -> None:
        if self._text.startswith("(", self._at):
            self._add(char)
            self._substitution()
            return
        if self._word is not None and self._plain and self._word.isdigit():
            self._word = None  # a descriptor
        self._end_word()
        if char == "<" and self._text.startswith("<", self._at):
            if not self._text.startswith("<<", self._at):
                raise ValueError("a here-document is not read")
            self._at += 2
        while self._text[self._at : self._at + 1] in ("<", ">", "&", "|"):
            self._at += 1
        self._target = True

    def ampersand(self, char: str) -> None:
        if self._text.startswith(">", self._at):
            self._end_word()
            self._at += 1
            self.redirection(">")
        else:
            self.separator(char)

    def _substitution(self) -> None:
        end = self._closing(self._at)
        self._found += programs(self._text[self._at + 1 : end - 1])
        self._at = end

    def _closing(self, start: int) -> int:
        """Index behind the parenthesis that closes the one at `start`; quotes are respected."""
        depth, at, quote = 0, start, ""
        while at < len(self._text):
            char = self._text[at]
            if char == "\\" and quote != "'":
                at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char in "()":
                depth += 1 if char == "(" else -1
                if depth == 0:
                    return at + 1
            at += 1
        raise ValueError("a parenthesis is not closed")

    def _add(self, text: str, *, plain: bool = True) -> None:
        self._word = (self._word or "") + text
        self._plain = self._plain and plain

    def _end_command(self) -> None:
        self._end_word()
        if self._target:
            raise ValueError("a redirection leads nowhere")
        self._command, self._loop = True, False

    def _end_word(self) -> None:
        word, plain = self._word, self._plain
        self._word, self._plain = None, True
        if word is None:
            return
        if self._target:
            self._target = False
        elif self._command and not self._loop:
            self._begin(word, plain)

    def _begin(self, word: str, plain: bool) -> None:
        """A word where a command begins."""
        if plain and word in _REFUSED:
            raise ValueError(f"{word!r} is not read")
        if plain and word == "for":
            self._loop = True
        elif (plain and word in _STAYS) or _ASSIGNMENT.match(word):
            return
        elif plain and word in _ENDS:
            self._command = False
        else:
            if not word or word[0] in "$`":
                raise ValueError("the program's name is not written out")
            self._found.append(word.rpartition("/")[2] or word)
            self._command = False


_HANDLERS: dict[str, Callable[[_Scanner, str], None]] = {
    " ": _Scanner.blank,
    "\t": _Scanner.blank,
    "\r": _Scanner.blank,
    "#": _Scanner.comment,
    "\\": _Scanner.escape,
    "'": _Scanner.single,
    '"': _Scanner.double,
    "$": _Scanner.dollar,
    "`": _Scanner.backtick,
    "<": _Scanner.redirection,
    ">": _Scanner.redirection,
    **dict.fromkeys(_SEPARATORS, _Scanner.separator),
    "&": _Scanner.ampersand,
}
