"""The operations: what an operator can do, defined once and rendered by the CLI and by MCP.

`index` lists every operation as plain data, so that help costs nothing. A noun's module defines
its operations with the decorator of `registry`: a pydantic model in, a pydantic model out, traits,
and a short text of the result. `commands` renders an operation as a Typer command; `mcp_server`
renders the same object as a tool.
"""
