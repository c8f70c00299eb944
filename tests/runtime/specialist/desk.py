"""A specification and rows that fit it, to be spoiled one way at a time."""

import json
from typing import Any

from runtime.specialist.check import Check
from runtime.specialist.findings import Finding
from runtime.specialist.leaks import HeldOutTask
from runtime.specialist.reading import seal
from specs.chat import File

INSTRUCTIONS = "You look things up.\nSay what you found, in a sentence."
TOOLS: list[dict[str, Any]] = [
    {
        "name": "search",
        "description": "Finds pages.",
        "input_schema": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
            "additionalProperties": False,
        },
    },
    {
        "name": "bash",
        "description": "Runs a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
]
SPEC: dict[str, Any] = {
    "schema": "practicum.model-spec/v1",
    "name": "acme/finder",
    "behaviour": "Answers questions about the handbook.",
    "instructions": INSTRUCTIONS,
    "tools": TOOLS,
    "resources": [
        {"path": "/work/", "kind": "given"},
        {"path": "/opt/finder/limits.md", "content": "Ten a day.\n"},
        {"path": "handbook/leave.md", "kind": "document", "digest": f"sha256:{'0' * 64}"},
    ],
    "withheld": [
        {"name": "answers.key", "content": "42\n"},
        {"name": "reference/", "about": "what the teacher reads"},
    ],
    "deployment": {
        "model": "tiny",
        "engine": {"name": "command", "version": "1"},
        "workdir": "/work",
        "args": ["finder", "--system", "${spec.instructions}", "--tools=${spec.tools}"],
        "network": ["api.example.org"],
    },
    "output": {"max_characters": 200},
    "useful": [{"name": "right", "statement": "The answer is what the handbook says."}],
}


def chat_tools() -> list[dict[str, Any]]:
    """The tools as a row carries them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["input_schema"],
            },
        }
        for tool in TOOLS
    ]


def call(name: str, arguments: Any) -> dict[str, Any]:
    """A turn of the assistant that calls a tool."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def row(
    question: str = "How many days of leave?",
    query: str = "leave",
    result: str = "Thirty days.",
    answer: str = "There are thirty days of leave.",
) -> dict[str, Any]:
    """A row that fits."""
    return {
        "messages": [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": question},
            call("search", {"query": query}),
            {"role": "tool", "tool_call_id": "c1", "content": result},
            {"role": "assistant", "content": answer},
        ],
        "tools": chat_tools(),
    }


def findings(
    rows: list[dict[str, Any]],
    spec: dict[str, Any] = SPEC,
    held_out: tuple[HeldOutTask, ...] = (),
) -> list[Finding]:
    """What a check of some rows finds."""
    data = "\n".join(map(json.dumps, rows)).encode()
    return list(Check(seal(spec, None), held_out).findings(File.of("rows.jsonl", data).rows()))
