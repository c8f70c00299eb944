"""A sealed specification as digests per part, as the deployed profile, and for data generation.

The actor's and the teacher's profile are made by one function: they differ in name, model and
the files that only the teacher has. Equal specifications give equal bytes.
"""

from typing import Any, cast

import jsonschema
from pydantic import JsonValue
from referencing import Registry
from referencing.exceptions import Unresolvable

from specs import canonical
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput, PracticumError
from specs.launch import validate_profile
from specs.model_spec import INSTRUCTIONS, TOOLS, Generation, ModelSpec, Parts, Tool
from specs.profile import SCHEMA, Profile

WHAT = "model-spec"


def instructions_of(spec: ModelSpec) -> str:
    """The instructions of a sealed specification."""
    if not isinstance(spec.instructions, str):
        raise _refuse("/instructions", "the file is not embedded", "Seal the specification.")
    return spec.instructions


def tools_of(spec: ModelSpec) -> tuple[Tool, ...]:
    """The tools of a sealed specification."""
    if not isinstance(spec.tools, tuple):
        raise _refuse("/tools", "the file is not embedded", "Seal the specification.")
    return spec.tools


def tool_documents(spec: ModelSpec) -> list[JsonValue]:
    """The tools with every field stated, as they are digested."""
    return [_whole(tool) for tool in tools_of(spec)]


def chat_tools(spec: ModelSpec) -> list[dict[str, JsonValue]]:
    """The tools as a chat row carries them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
            },
        }
        for tool in tools_of(spec)
    ]


def parts(spec: ModelSpec) -> Parts:
    """Digest of each part; defaults count as if they were written."""
    resources: list[JsonValue] = [
        {"path": one.path, "kind": one.kind, "digest": one.digest} for one in spec.resources
    ]
    return Parts(
        instructions=canonical.digest(instructions_of(spec)),
        tools=canonical.digest(tool_documents(spec)),
        output=canonical.digest(_whole(spec.output)),
        resources=canonical.digest(resources),
        deployment=canonical.digest(_whole(spec.deployment)),
        useful=canonical.digest([_whole(criterion) for criterion in spec.useful]),
    )


def actor_profile(spec: ModelSpec, model: str | None = None) -> Profile:
    """The profile of the deployed model, or of another `model` in its place.

    Raises:
        InvalidInput: what the one interpreter of profiles refuses, or instructions that do not
            reach the harness.
    """
    return _profile(spec, spec.name, model or spec.deployment.model, _files(spec))


def teacher_profile(spec: ModelSpec, model: str) -> Profile:
    """The same recipe for a teacher, with the files that the deployed model lacks.

    Raises:
        InvalidInput: as `actor_profile`.
    """
    org, _, name = spec.name.partition("/")
    extra: list[JsonValue] = [
        {"path": _literal(one.name), "content": one.content}
        for one in spec.withheld
        if one.content is not None
    ]
    return _profile(spec, f"{org}/{name[:56]}-teacher", model, [*_files(spec), *extra])


def generation(spec: ModelSpec, model: str) -> Generation:
    """What a harness for data generation needs, with `model` as the teacher.

    Raises:
        InvalidInput: as `actor_profile`.
    """
    profile = teacher_profile(spec, model)
    return Generation(
        spec=canonical.digest(spec),
        parts=parts(spec),
        profile_digest=canonical.digest(profile),
        behaviour=spec.behaviour,
        messages=({"role": "system", "content": instructions_of(spec)},),
        tools=tuple(chat_tools(spec)),
        output=spec.output,
        useful=spec.useful,
        withheld=tuple(one.name for one in spec.withheld),
        profile=canonical.document(profile),
    )


def check_schemas(spec: ModelSpec) -> None:
    """Refuse schemas of tools and output that are not JSON Schema draft 2020-12.

    Raises:
        InvalidInput: naming the place.
    """
    schemas = {
        f"/tools/{index}/input_schema": tool.input_schema
        for index, tool in enumerate(tools_of(spec))
    }
    if spec.output.json_schema is not None:
        schemas["/output/json_schema"] = spec.output.json_schema
    for pointer, schema in schemas.items():
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            step = "Correct the schema; see json-schema.org, draft 2020-12."
            raise _refuse(pointer, f"not a JSON Schema: {error.message}", step) from None


def schema_error(schema: dict[str, JsonValue], value: JsonValue) -> str | None:
    """Why a schema does not allow `value`; None where it does. References to the network are
    not followed."""
    validator = jsonschema.Draft202012Validator(schema, registry=Registry())
    try:
        errors: Any = validator.iter_errors(cast(Any, value))
        found = next(iter(errors), None)
    except Unresolvable as error:
        return f"the schema refers to {error.ref}, which it does not hold"
    return None if found is None else str(found.message)[:300]


def _profile(spec: ModelSpec, name: str, model: str, files: list[JsonValue]) -> Profile:
    told = {INSTRUCTIONS: instructions_of(spec)}
    told[TOOLS] = canonical.canonical_bytes(tool_documents(spec)).decode()
    deployment = spec.deployment
    agent: dict[str, JsonValue] = {
        "model": model,
        "engine": _whole(deployment.engine),
        "workdir": deployment.workdir,
        "instruction": _whole(deployment.instruction),
    }
    optional: dict[str, JsonValue] = {
        "files": [_filled(file, told) for file in files],
        "setup": list(deployment.setup),
        "args": [_told(text, told) for text in deployment.args],
        "env": {name: _told(text, told) for name, text in deployment.env.items()},
        "sampling": canonical.document(deployment.sampling),
        "outputs": [canonical.document(output) for output in spec.output.files],
    }
    agent |= {key: value for key, value in optional.items() if value}
    document: dict[str, JsonValue] = {"schema": SCHEMA, "name": name, "agent": agent}
    try:
        profile = canonical.validate(Profile, document, what="profile")
        plan = validate_profile(profile)
    except PracticumError as error:
        raise _as_spec(error) from None
    reached = [*plan.argv, *plan.env.values(), *(file.content for file in plan.files)]
    if not any(told[INSTRUCTIONS] in text for text in reached):
        raise _refuse(
            "/instructions",
            "they reach neither an argument nor a variable nor a file of the harness",
            f"Write {INSTRUCTIONS} where the harness takes them, such as an argument.",
        )
    return profile


def _files(spec: ModelSpec) -> list[JsonValue]:
    """Files of the harness, then those that the model may read."""
    harness: list[JsonValue] = [canonical.document(file) for file in spec.deployment.files]
    readable: list[JsonValue] = [
        {"path": _literal(one.path), "content": one.content}
        for one in spec.resources
        if one.kind == "file"
    ]
    return harness + readable


def _filled(file: JsonValue, told: dict[str, str]) -> JsonValue:
    """A file whose whole content is a placeholder holds what it stands for."""
    document = cast(dict[str, JsonValue], file)
    content = document.get("content")
    return {**document, "content": told.get(str(content), content)}


def _told(text: str, told: dict[str, str]) -> str:
    """`text` with the placeholders, literal for the interpreter of profiles.

    Split first, so that what is put in is never searched for a placeholder itself.
    """
    pieces = text.split(INSTRUCTIONS)
    pieces = [_literal(told[TOOLS]).join(piece.split(TOOLS)) for piece in pieces]
    return _literal(told[INSTRUCTIONS]).join(pieces)


def _literal(text: str) -> str:
    return text.replace("${", "$${")


def _whole(value: Contract) -> dict[str, JsonValue]:
    return cast(dict[str, JsonValue], value.model_dump(mode="json"))


def _as_spec(error: PracticumError) -> InvalidInput:
    """A profile's error, about the specification that it was made of."""
    problem = error.problem
    pointer = (problem.object.pointer if problem.object else None) or "/"
    place = pointer.replace("/agent/", "/deployment/", 1)
    return InvalidInput(
        f"The {WHAT} renders into a profile that cannot be launched: {problem.detail}",
        code=problem.code,
        object=ErrorObject(type=WHAT, pointer=place),
        next=problem.next,
    )


def _refuse(pointer: str, cause: str, step: str) -> InvalidInput:
    return InvalidInput(
        f"The {WHAT} cannot be used at {pointer}: {cause}.",
        object=ErrorObject(type=WHAT, pointer=pointer),
        next=step,
    )
