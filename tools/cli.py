"""The command `practicum`: nouns and verbs out of the index, with Typer alone.

Help needs nothing but the index. Once a verb is named, the modules of its noun are loaded and the
operation becomes a full command, so a command pays only for what it uses.
"""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from tools.index import NOUNS, SHORT, STACK, SUMMARIES

ABOUT = "Train and test tool-using coding agents on real work, in their native harness."
CLAUDE = ("claude", "Start your own Claude Code on a model or a checkpoint")
MCP = ("mcp", "Serve every operation over the Model Context Protocol")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 failed, 2 bad input, 3 not found or
    forbidden, 4 timed out waiting."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result: object = build(given)(args=given, prog_name="practicum", standalone_mode=False)
    except TyperException as error:
        return _usage(error, given)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return 1
    return result if isinstance(result, int) else 0


def run() -> None:
    """Entry point of the console script."""
    sys.exit(main())


def build(given: Sequence[str]) -> typer.Typer:
    """The application, as far as the words of this command line need it."""
    words = [word for word in given if not word.startswith("-")]
    noun, verb = [*words, "", ""][:2]
    app = _group(ABOUT)
    app.callback()(_root)
    for name, summary in _top_level():
        if name == noun:
            _add(app, STACK, name)
        else:
            app.command(name, help=summary)(_never)
    for name, summary in NOUNS.items():
        group = _group(summary)
        app.add_typer(group, name=name)
        if name == noun:
            _fill(group, noun, verb)
    return app


def _fill(group: typer.Typer, noun: str, verb: str) -> None:
    for (name, one), summary in SUMMARIES.items():
        if name != noun:
            continue
        if one == verb:
            _add(group, noun, verb)
        else:
            group.command(one, help=summary)(_never)


def _add(app: typer.Typer, noun: str, verb: str) -> None:
    from tools.commands import add_claude, add_mcp, add_operation

    if (noun, verb) in SUMMARIES:
        add_operation(app, noun, verb)
    elif verb in SHORT:
        add_operation(app, *SHORT[verb])
    elif verb == CLAUDE[0]:
        add_claude(app, *CLAUDE)
    else:
        add_mcp(app, *MCP)


def _top_level() -> list[tuple[str, str]]:
    stack = [(verb, summary) for (noun, verb), summary in SUMMARIES.items() if noun == STACK]
    short = [(name, SUMMARIES[one]) for name, one in SHORT.items()]
    return [*stack, *short, CLAUDE, MCP]


def _group(about: str) -> typer.Typer:
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def _root() -> None:
    """Without a callback Typer would make a lone command the whole application."""


def _never() -> None:
    """Body of a command that stands in a help page only; naming it loads the real one."""


def _usage(error: TyperException, given: Sequence[str]) -> int:
    """Report a command line that Typer refused."""
    if not str(error.format_message()):
        return error.exit_code
    from specs.errors import ErrorCode, ErrorObject, InvalidInput
    from tools.failures import report

    words = [word for word in given if not word.startswith("-")][:2]
    problem = InvalidInput(
        error.format_message(),
        code=ErrorCode.INVALID_DOCUMENT,
        object=ErrorObject(type="command_line", id=" ".join(given)),
        next=f"See: practicum {' '.join([*words, '--help'])}",
    ).problem
    return report(problem, as_json="--json" in given)
