"""One operation as a Typer command.

A field of the input becomes an option of the same name, or what its `Cli` marker says. Typer
takes text; pydantic reads it, so that a bad value is refused as it is over MCP. Every command
also has `--home` and `--json`.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import anyio
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from runtime.home import Home
from runtime.supervisor.parts import code_folder
from specs.errors import Internal, PracticumError, Problem
from tools.context import Context
from tools.ending import attended
from tools.failures import report, visible
from tools.fields import Cli
from tools.registry import Operation, call, find

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Home of the stack [PRACTICUM_HOME, else ~/.practicum]"),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Base model or checkpoint id", metavar="MODEL")
]
HttpOption = Annotated[
    bool, typer.Option("--http", help="Serve streamable HTTP at /mcp, behind a bearer key")
]
HostOption = Annotated[str, typer.Option("--host", help="With --http: address to listen at")]
PortOption = Annotated[
    int, typer.Option("--port", help="With --http: port, 0 for any", min=0, max=65535)
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="Name by which other machines may reach it", metavar="NAME"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write the result as JSON")]


def add_operation(app: typer.Typer, noun: str, verb: str) -> None:
    """Add the command of an operation to the group of its noun."""
    chosen = find(noun, verb)
    summary = f"{chosen.summary}.\n\n{chosen.description}"
    app.command(verb, help=summary)(_command(chosen))


def add_mcp(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command that serves MCP on stdin and stdout, or over HTTP."""

    def serve(
        http: HttpOption = False,
        host: HostOption = "127.0.0.1",
        port: PortOption = 8765,
        allow_host: AllowHostOption = None,
        home: HomeOption = None,
    ) -> int:
        try:
            root = str(Home.at(home).root)
        except PracticumError as error:
            return report(error.problem, as_json=False)
        arguments = [sys.executable, "-P", "-m", "mcp_server", "--home", root]
        if http:
            arguments += ["--http", "--host", host, "--port", str(port)]
            arguments += [word for one in allow_host or () for word in ("--allow-host", one)]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONPATH": code_folder()})

    app.command(name, help=summary)(serve)


def add_claude(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command that starts Claude Code; what it does not know is Claude Code's."""

    def start(context: typer.Context, model: ModelOption = None, home: HomeOption = None) -> int:
        from tools.claude import DEFAULT_MODEL, start_claude

        try:
            return start_claude(Home.at(home), model or DEFAULT_MODEL, list(context.args))
        except PracticumError as error:
            return report(error.problem, as_json=False)

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    about = (
        f"{summary}.\n\nYour installed program, with your own configuration, tools, plugins,"
        " permissions and sessions; all other arguments are its own (after `--`, also --help)."
    )
    app.command(name, help=about, context_settings=settings)(start)


def _command(chosen: Operation) -> Callable[..., int]:
    """A function whose signature is the operation's input, for Typer to read."""

    def command(**values: Any) -> int:
        home: Path | None = values.pop("home")
        as_json: bool = values.pop("json")
        given = {name: value for name, value in values.items() if value is not None}
        return anyio.run(attended, partial(_run, chosen, home, given, as_json))

    parameters = [_parameter(name, info) for name, info in chosen.input.model_fields.items()]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    parameters += [
        _keyword("home", HomeOption, None),
        _keyword("json", JsonOption, False),
    ]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


async def _run(chosen: Operation, home: Path | None, values: dict[str, Any], as_json: bool) -> int:
    """Run an operation and write its result, or why there is none; returns the exit code."""
    try:
        return await _written(chosen, home, values, as_json)
    except BrokenPipeError:
        return 1  # nobody reads on
    except PracticumError as error:
        return report(error.problem, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - a defect of ours, told like every failure
        traceback.print_exc()
        return report(_defect(error), as_json=as_json)


async def _written(
    chosen: Operation, home: Path | None, values: dict[str, Any], as_json: bool
) -> int:
    async def emit(record: BaseModel, text: str) -> None:
        write(record.model_dump_json() if as_json else visible(text))

    context = Context(Home.at(home), progress=_progress, emit=emit)
    result = await call(chosen, context, values)
    text = result.model_dump_json() if as_json else visible(chosen.text(result))
    if text:
        write(text)
    return exit_status(result)


def _defect(error: Exception) -> Problem:
    return Internal(
        f"{type(error).__name__}: {error}", next="Report it with the traceback above."
    ).problem


def exit_status(result: BaseModel) -> int:
    """0, unless the result itself says that what was asked for failed."""
    return 0 if getattr(result, "ok", True) else 1


def write(text: str) -> None:
    """One piece of output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _parameter(name: str, info: FieldInfo) -> inspect.Parameter:
    """The parameter of one field: text to be read later, a flag, or a list of texts."""
    marker = next((item for item in info.metadata if isinstance(item, Cli)), Cli())
    base, choices = _kind(info.annotation)
    default = inspect.Parameter.empty if info.is_required() else _default(base)
    about = _help(info, choices) + (" (repeatable)" if base is tuple else "")
    metavar = marker.metavar or ("|".join(choices) if choices else None)
    if marker.positional:
        option: Any = typer.Argument(help=about, metavar=metavar or name.upper())
    else:
        flag = marker.option or f"--{name.replace('_', '-')}"
        option = typer.Option(flag, help=about, metavar=None if base is bool else metavar)
    kind = {bool: bool, tuple: list[str]}.get(base, str)
    annotation: Any = kind if info.is_required() or base in (bool, tuple) else kind | None
    return _keyword(name, Annotated[annotation, option], default)


def _kind(annotation: Any) -> tuple[type, tuple[str, ...]]:
    """`bool`, `tuple` or `str`, and the choices of a literal."""
    options = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    for option in options:
        origin = get_origin(option)
        if option is bool:
            return bool, ()
        if origin in (tuple, list):
            return tuple, ()
        if origin is Literal:
            return str, tuple(str(choice) for choice in get_args(option))
    return str, ()


def _default(base: type) -> object:
    if base is tuple:
        return list[str]()
    return False if base is bool else None


def _help(info: FieldInfo, choices: tuple[str, ...]) -> str:
    text = info.description or ""
    default = info.get_default(call_default_factory=False)
    if info.is_required() or default in (None, False, (), []) or choices:
        return text
    return f"{text} [{default}]"
