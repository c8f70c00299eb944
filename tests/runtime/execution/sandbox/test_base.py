"""The base derived from the host: what it holds, and that its digest is of what matters."""

import json
import os
import stat
from pathlib import Path

import pytest

from runtime.execution.sandbox import base as module
from runtime.execution.sandbox.base import base_digest, derive
from runtime.execution.sandbox.options import ToolFolder
from runtime.execution.sandbox.sandbox import Settings
from specs.canonical import digest
from specs.errors import InvalidInput
from tests.runtime.execution.sandbox.support import sh, start, text

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


def test_the_digest_is_of_the_facts_and_not_of_places(state: Path, tmp_path: Path) -> None:
    first, second = derive(state), derive(tmp_path / "elsewhere")
    assert first.digest == second.digest == digest(first.facts)  # pyright: ignore[reportArgumentType]
    assert first.digest == base_digest(state)
    assert str(state) not in json.dumps(first.facts)


def test_it_is_derived_again_only_when_the_host_changes(state: Path) -> None:
    first = derive(state)
    before = sorted((state / "base").iterdir())
    module._known.clear()  # pyright: ignore[reportPrivateUsage]
    assert derive(state) == first
    assert sorted((state / "base").iterdir()) == before


def test_tool_folders_are_part_of_the_digest(state: Path, tmp_path: Path) -> None:
    one = ToolFolder(source=tmp_path, target="/opt/tool", version="1")
    two = one.model_copy(update={"version": "2"})
    assert (
        len(
            {
                derive(state).digest,
                derive(state, tools=[one]).digest,
                derive(state, tools=[two]).digest,
            }
        )
        == 3
    )


def test_copied_files_were_public_and_hold_no_key(state: Path) -> None:
    root = Path(derive(state).roots[0].lowers[0])
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"PRIVATE KEY-----" not in path.read_bytes()
            assert not stat.S_IMODE(path.stat().st_mode) & 0o022
    for name in ("ssh", "environment", "sudoers", "gitconfig", "hosts.allow", "profile.d"):
        assert not (root / "etc" / name).exists()
    assert "$" not in (root / "etc/shadow").read_text()


def test_a_state_folder_among_what_sandboxes_see_is_refused() -> None:
    with pytest.raises(InvalidInput, match="state folder"):
        derive(Path("/usr/share/practicum-state"))


async def test_a_project_under_usr_is_masked(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = Path("/usr/share/doc")
    monkeypatch.setenv("HOME", str(hidden))
    sandbox = await start(settings, base=derive(tmp_path), state=tmp_path)
    try:
        assert text(await sh(sandbox, "ls /usr/share/doc; ls /usr/share | head -1")).strip() != ""
        assert text(await sh(sandbox, "ls -A /usr/share/doc")) == ""
    finally:
        await sandbox.stop()


async def test_a_bundled_python_shows_nothing_else_of_its_prefix(settings: Settings) -> None:
    base = derive(settings.state, "bundled")
    sandbox = await start(settings, base=base)
    try:
        code = "import sys, ssl, sqlite3, json, hashlib; print(sys.version_info[:2], sys.prefix)"
        done = await sh(sandbox, f"python3 -c '{code}'; python -V; ls /usr/local/bin")
        assert done.code == 0, text(done)
        assert "/opt/practicum/python" in text(done)
        done = await sh(
            sandbox,
            "ls -d /root/.[!.]* /root/* /home/*; touch $(echo /opt/practicum/python/lib/p*)/x",
        )
        assert done.stdout == b""
        assert b"Read-only" in done.stderr
        done = await sh(sandbox, "python3 -c 'import pip'")
        assert b"No module named" in done.stderr
        assert str(base.facts["python"]).startswith("bundled 3.")
    finally:
        await sandbox.stop()


async def test_the_umask_of_the_worker_does_not_show_inside(
    settings: Settings, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        base = derive(tmp_path / "private")
        sandbox = await start(settings, base=base, state=tmp_path / "private")
    finally:
        os.umask(before)
    try:
        done = await sh(
            sandbox, "cat /etc/os-release && ls /usr/bin && touch /tmp/x", user="nobody"
        )
        assert done.code == 0, text(done)
    finally:
        await sandbox.stop()
    assert base.digest == settings.base.digest
