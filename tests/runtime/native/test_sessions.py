"""Who attends to a session is known by a lock that no crash leaves behind (invariant 12)."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.home import Home
from runtime.native.sessions import attended, unattended
from specs.errors import Conflict
from specs.ids import Prefix, new_id

ROOT = Path(__file__).resolve().parents[3]
_ATTEND = """
import sys
from pathlib import Path
from runtime.home import Home
from runtime.native.sessions import attended

with attended(Home.at(Path(sys.argv[1])), sys.argv[2]) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_session_is_left_by_a_command_that_is_killed_and_by_no_other(tmp_path: Path) -> None:
    home, session = Home.at(tmp_path), new_id(Prefix.SESSION)
    command = [sys.executable, "-c", _ATTEND, str(tmp_path), session]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == str(home.sessions / session)
        assert list(unattended(home)) == []
        process.kill()
    assert list(unattended(home)) == [session]
    assert list(unattended(home)) == []


def test_a_session_that_ended_is_forgotten_and_one_that_may_not_have_is_not(
    tmp_path: Path,
) -> None:
    home, ended, failed = Home.at(tmp_path), new_id(Prefix.SESSION), new_id(Prefix.SESSION)
    with attended(home, ended) as folder:
        assert (folder.stat().st_mode & 0o777) == 0o700
        (folder / "harness.log").touch()
    with pytest.raises(ZeroDivisionError), attended(home, failed):
        raise ZeroDivisionError
    assert list(unattended(home)) == [failed]
    assert [path.name for path in home.sessions.iterdir()] == [ended]
    with pytest.raises(Conflict), attended(home, ended):
        pass
