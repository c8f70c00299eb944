"""The server with what the MCP conformance suite asks for by fixed names, beside Practicum's own.

`python -P -m tests.mcp_server.everything --home DIR` serves it as `practicum mcp --http` serves the
real one: the same server, application, key and checks of Host and Origin. The suite shows no key,
so it is put into each request before that application sees it. Logging, sampling and elicitation
are the protocol's own and no part of Practicum; here they only go through its server.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import ServerMessageMetadata
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_server.http import http_app, serve_app
from mcp_server.offers import (
    Call,
    Contents,
    Messages,
    Offer,
    PromptOffer,
    Request,
    ResourceOffer,
    ToolOffer,
)
from mcp_server.server import build_server
from runtime.home import Home

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAA"
    "DUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAUSE_SEC = 0.05
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
RICH: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
USER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
    "required": [],
}


def _titled(word: str) -> list[dict[str, str]]:
    places = (("value1", "First"), ("value2", "Second"), ("value3", "Third"))
    return [{"const": value, "title": f"{place} {word}"} for value, place in places]


ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": _titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {"type": "array", "items": {"anyOf": _titled("Choice")}},
    },
    "required": [],
}


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def _embedded(uri: str, text: str, mime: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type=mime, text=text)
    )


def _tool(name: str, call: Call, schema: dict[str, Any] = OBJECT) -> ToolOffer:
    about = f"Conformance: {name.removeprefix('test_')}"
    return ToolOffer(types.Tool(name=name, description=about, input_schema=schema), call)


def _fixed(name: str, *content: types.ContentBlock, failed: bool = False) -> ToolOffer:
    async def call(_: Request, __: dict[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=list(content), is_error=failed)

    return _tool(name, call)


async def _log(request: Request, _: dict[str, Any]) -> types.CallToolResult:
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        note = types.LoggingMessageNotification(
            params=types.LoggingMessageNotificationParams(level="info", data=step)
        )
        await request.session.send_notification(note, related_request_id=request.request_id)
        await anyio.sleep(PAUSE_SEC)
    return types.CallToolResult(content=[_text("logged")])


async def _progress(request: Request, _: dict[str, Any]) -> types.CallToolResult:
    for step in (0, 50, 100):
        await request.session.report_progress(step, 100)
        await anyio.sleep(PAUSE_SEC)
    return types.CallToolResult(content=[_text("progressed")])


async def _sample(request: Request, values: dict[str, Any]) -> types.CallToolResult:
    asked = types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=_text(values["prompt"]))],
            max_tokens=100,
        )
    )
    found = await request.session.send_request(
        asked,
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=request.request_id),
    )
    answer = found.content.text if isinstance(found.content, types.TextContent) else ""
    return types.CallToolResult(content=[_text(f"LLM response: {answer}")])


def _asking(name: str, schema: dict[str, Any], head: str, taken: dict[str, Any]) -> ToolOffer:
    async def call(request: Request, values: dict[str, Any]) -> types.CallToolResult:
        message = str(values.get("message", "Please review and update the form fields"))
        found = await request.session.elicit_form(message, schema, request.request_id)
        content = json.dumps(found.content)
        return types.CallToolResult(
            content=[_text(f"{head}: action={found.action}, content={content}")]
        )

    return _tool(name, call, taken)


def _one(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


TOOLS = (
    _fixed("test_simple_text", _text("This is a simple text response for testing.")),
    _fixed("test_image_content", _image()),
    _fixed("test_audio_content", types.AudioContent(data=WAV, mime_type="audio/wav")),
    _fixed(
        "test_embedded_resource",
        _embedded("test://embedded-resource", "This is an embedded resource content."),
    ),
    _fixed(
        "test_multiple_content_types",
        _text("Multiple content types test:"),
        _image(),
        _embedded(
            "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
        ),
    ),
    _fixed(
        "test_error_handling",
        _text("This tool intentionally returns an error for testing"),
        failed=True,
    ),
    _fixed("test_reconnection", _text("Reconnection test completed successfully")),
    _tool("test_tool_with_logging", _log),
    _tool("test_tool_with_progress", _progress),
    _tool("test_sampling", _sample, _one("prompt")),
    _tool("json_schema_2020_12_tool", _progress, RICH),
    _asking("test_elicitation", USER, "User response", _one("message")),
    _asking("test_elicitation_sep1034_defaults", DEFAULTS, "Elicitation completed", OBJECT),
    _asking("test_elicitation_sep1330_enums", ENUMS, "Elicitation completed", OBJECT),
)


async def _static_text(uri: str, _: Mapping[str, str]) -> Contents:
    text = "This is the content of the static text resource."
    return [types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)]


async def _static_binary(uri: str, _: Mapping[str, str]) -> Contents:
    return [types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)]


async def _data(uri: str, variables: Mapping[str, str]) -> Contents:
    number = variables["id"]
    value = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
    text = json.dumps(value)
    return [types.TextResourceContents(uri=uri, mime_type="application/json", text=text)]


RESOURCES = (
    ResourceOffer(
        types.Resource(uri="test://static-text", name="static text", description="A text"),
        _static_text,
    ),
    ResourceOffer(
        types.Resource(uri="test://static-binary", name="static binary", description="An image"),
        _static_binary,
    ),
    ResourceOffer(
        types.ResourceTemplate(uri_template="test://template/{id}/data", name="data"), _data
    ),
)


def _says(*content: types.ContentBlock) -> list[types.PromptMessage]:
    return [types.PromptMessage(role="user", content=one) for one in content]


def _prompt(name: str, messages: Messages, *arguments: str) -> PromptOffer:
    listed = types.Prompt(
        name=name,
        description=f"Conformance: {name.removeprefix('test_')}",
        arguments=[types.PromptArgument(name=one, required=True) for one in arguments],
    )
    return PromptOffer(listed, messages)


PROMPTS = (
    _prompt("test_simple_prompt", lambda _: _says(_text("This is a simple prompt for testing."))),
    _prompt(
        "test_prompt_with_arguments",
        lambda given: _says(
            _text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
        ),
        "arg1",
        "arg2",
    ),
    _prompt(
        "test_prompt_with_embedded_resource",
        lambda given: _says(
            _embedded(given["resourceUri"], "Embedded resource content for testing."),
            _text("Please process the embedded resource above."),
        ),
        "resourceUri",
    ),
    _prompt(
        "test_prompt_with_image",
        lambda _: _says(_image(), _text("Please analyze the image above.")),
    ),
)


async def _complete(name: str, written: str) -> list[str] | None:
    if name != "arg1":
        return None
    return [value for value in ("paris", "park", "party") if value.startswith(written)]


async def _accepted(_: Request, __: Any) -> types.EmptyResult:
    return types.EmptyResult()


def showing(app: ASGIApp, key: str) -> ASGIApp:
    """The application behind a client that shows the key with every request."""

    async def shown(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            head = (b"authorization", f"Bearer {key}".encode())
            scope = {**scope, "headers": [*scope["headers"], head]}
        await app(scope, receive, send)

    return shown


async def serve(home: Home) -> None:
    """Serve until a signal."""
    server = build_server(home, Offer(TOOLS, RESOURCES, PROMPTS, _complete))
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _accepted)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, _accepted)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, _accepted)
    app = showing(http_app(server, home.mcp_key()), home.mcp_key())
    await serve_app(app, "127.0.0.1", 0, str(home.mcp_key_file))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    anyio.run(serve, Home.at(parser.parse_args().home))
