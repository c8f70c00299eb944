"""A gateway elsewhere, by the environment: what is taken, and what is refused."""

from pathlib import Path

import pytest

from runtime.client import remote_gateway
from specs.errors import InvalidInput

TOKEN = "eyJ-grant"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("http://127.0.0.1:8485", "http://127.0.0.1:8485"),
        ("http://localhost:8485/", "http://localhost:8485"),
        ("http://[::1]:8485", "http://[::1]:8485"),
        ("https://gateway.example.org", "https://gateway.example.org"),
        ("unix:/run/gateway.sock", Path("/run/gateway.sock")),
    ],
)
def test_a_gateway_elsewhere_is_named_by_url_or_socket(text: str, place: Path | str) -> None:
    found = remote_gateway({"PRACTICUM_GATEWAY": text, "PRACTICUM_TOKEN": TOKEN})
    assert found is not None
    assert (found.place, found.token) == (place, TOKEN)
    assert TOKEN not in repr(found)


def test_without_the_variable_the_gateway_is_the_homes_own() -> None:
    assert remote_gateway({}) is None
    assert remote_gateway({"PRACTICUM_GATEWAY": "", "PRACTICUM_TOKEN": TOKEN}) is None


@pytest.mark.parametrize(
    ("place", "token", "named"),
    [
        ("http://10.0.0.1:8485", TOKEN, "PRACTICUM_GATEWAY"),
        ("http://127.0.0.1.example.org", TOKEN, "PRACTICUM_GATEWAY"),
        ("http://user:word@127.0.0.1:1", TOKEN, "PRACTICUM_GATEWAY"),
        ("http://127.0.0.1:8485/v1", TOKEN, "PRACTICUM_GATEWAY"),
        ("http://127.0.0.1:port", TOKEN, "PRACTICUM_GATEWAY"),
        ("http://[::1", TOKEN, "PRACTICUM_GATEWAY"),
        ("ftp://127.0.0.1", TOKEN, "PRACTICUM_GATEWAY"),
        ("gateway.sock", TOKEN, "PRACTICUM_GATEWAY"),
        ("http://127.0.0.1:8485", "", "PRACTICUM_TOKEN"),
        ("http://127.0.0.1:8485", "two words", "PRACTICUM_TOKEN"),
        ("http://127.0.0.1:8485", "line\nbreak", "PRACTICUM_TOKEN"),
    ],
)
def test_what_cannot_be_used_or_would_show_the_token_is_refused(
    place: str, token: str, named: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        remote_gateway({"PRACTICUM_GATEWAY": place, "PRACTICUM_TOKEN": token})
    problem = caught.value.problem
    assert problem.object is not None and problem.object.id == named
    assert TOKEN not in problem.detail
