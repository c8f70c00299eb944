"""The Dockerfile subset: what is read, and that everything else is refused with line and step."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.execution.sandbox import dockerfile
from runtime.execution.sandbox.definition import Definition
from runtime.execution.sandbox.options import ACCEPTED_IMAGES
from specs.errors import ErrorCode, InvalidInput

FROM = "FROM debian:bookworm\n"


def test_reads_continuations_comments_and_flags_with_line_numbers() -> None:
    text = (
        "# syntax=docker/dockerfile:1\nARG TAG=bookworm\nFROM debian:${TAG}\n\n"
        "RUN echo a && \\\n  # a comment inside\n\n  echo b\n"
        'COPY --chown=1:2 --chmod=755 a b /c/\nCMD ["bash"]\n'
    )
    run, copy = [i for i in dockerfile.parse(text) if i.name in ("RUN", "COPY")]
    assert (run.line, run.value.split()) == (5, ["echo", "a", "&&", "echo", "b"])
    assert (copy.line, copy.flags) == (9, {"chown": "1:2", "chmod": "755"})
    assert dockerfile.image_of(dockerfile.parse(text)) == ("debian:bookworm", 3)


def test_words_expand_like_docker() -> None:
    scope = {"A": "x y", "E": ""}
    given_text = r"""$A "${A}z" '$A' a\ b ${E:-def} ${A:+set} ${NO} \$A ''"""
    assert dockerfile.words(given_text, scope) == [
        *("x y", "x yz", "$A", "a b", "def", "set", "", "$A", "")
    ]


@given(st.text(max_size=60))
def test_words_never_fail(text: str) -> None:
    assert isinstance(dockerfile.words(text, {}), list)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    try:
        dockerfile.parse(text)
    except InvalidInput as error:
        assert error.problem.code is ErrorCode.DOCKERFILE_UNSUPPORTED
        assert error.problem.next


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 1, "no FROM"),
        ("RUN x\nFROM debian", 1, "before FROM"),
        (FROM + "FROM debian AS two\n", 2, "second FROM"),
        (FROM + "\nCOPY --from=ghcr.io/astral-sh/uv /uv /bin/\n", 3, "another image"),
        (FROM + "ADD https://example.org/x /x\n", 2, "fetches"),
        (FROM + "ADD x.tar.gz /x\n", 2, "unpacks"),
        (FROM + 'ENTRYPOINT ["/start"]\n', 2, "ENTRYPOINT"),
        (FROM + "ONBUILD RUN x\n", 2, "ONBUILD"),
        (FROM + "RUN <<EOF\necho\nEOF\n", 2, "here-documents"),
        (FROM + "RUN --mount=type=secret,id=x cat\n", 2, "--mount"),
        (FROM + "RUN --network=host true\n", 2, "--network"),
        (FROM + "COPY --parents a b\n", 2, "--parents"),
        ("# escape=`\n" + FROM, 1, "escape"),
        ("FROM alpine:3.20\n", 1, "alpine:3.20"),
        ("FROM ghcr.io/acme/debian:1\n", 1, "ghcr.io"),
        (FROM + "!!!\n", 2, "not an instruction"),
        (FROM + "ENV A=1 B\n", 2, "two forms"),
    ],
)
def test_refusals_name_line_cause_and_next_step(
    tmp_path: Path, text: str, line: int, word: str
) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        definition = Definition.read(tmp_path, None, ACCEPTED_IMAGES)
        for instruction in definition.instructions:
            if instruction.name == "ENV":
                dockerfile.assignments(instruction, {})
    problem = caught.value.problem
    assert problem.code is ErrorCode.DOCKERFILE_UNSUPPORTED
    assert problem.detail.startswith(f"Dockerfile line {line}:")
    assert word in problem.detail
    assert problem.next


@pytest.mark.parametrize("name", ["docker-compose.yaml", "compose.yaml"])
def test_compose_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("services: {}\n")
    with pytest.raises(InvalidInput) as caught:
        Definition.read(tmp_path, None, ACCEPTED_IMAGES)
    assert caught.value.problem.code is ErrorCode.SANDBOX_UNSUPPORTED


def test_an_image_without_a_dockerfile_must_be_one_that_the_host_stands_in_for(
    tmp_path: Path,
) -> None:
    Definition.read(tmp_path, "python:3.13-slim", ACCEPTED_IMAGES)
    Definition.read(tmp_path, "docker.io/library/ubuntu:24.04", ACCEPTED_IMAGES)
    with pytest.raises(InvalidInput, match="acme/task"):
        Definition.read(tmp_path, "acme/task:1", ACCEPTED_IMAGES)


def test_the_digest_is_of_instructions_and_context(tmp_path: Path) -> None:
    def digest(text: str, data: str) -> str:
        (tmp_path / "Dockerfile").write_text(text)
        (tmp_path / "data").write_text(data)
        return Definition.read(tmp_path, None, ACCEPTED_IMAGES).digest()

    first = digest(FROM + "COPY data /\n", "a")
    assert first == digest(FROM + "COPY data /\n", "a")
    assert (
        len({first, digest(FROM + "COPY data /x\n", "a"), digest(FROM + "COPY data /\n", "b")}) == 3
    )
