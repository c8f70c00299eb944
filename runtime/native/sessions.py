"""Sessions of this machine, and which of them somebody still attends to.

    <home>/sessions/ses_….lock   held by the command that opened the session, while it lives
    <home>/sessions/ses_…/       its log, settings and the harness's own configuration

The lock exists before the session does and is removed once it has ended, so a lock that nobody
holds belongs to a command that was killed. The next one ends its session (invariant 12).
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from runtime.exclusive import acquire
from runtime.home import Home
from specs.errors import Conflict, ErrorObject


@contextmanager
def attended(home: Home, session: str) -> Generator[Path]:
    """Attend to a session that is about to be opened; its folder.

    Leave normally once it has ended. After an error the next command sees to it.

    Raises:
        Conflict: there is a folder of that session already.
    """
    folder = home.sessions / session
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise Conflict(
            "The session has been opened before.",
            object=ErrorObject(type="session", id=session),
            next="Open a session with an id of its own.",
        ) from None
    draft = folder / ".lock"
    lock = acquire(draft, 0)
    assert lock is not None, "a file that was just made is locked by nobody"
    with lock:
        path = _lock_of(home, session)
        draft.rename(path)  # whoever sees it sees it held
        yield folder
        path.unlink(missing_ok=True)


def unattended(home: Home) -> Generator[str]:
    """Sessions whose command is gone; each is to be ended before the next is asked for.

    The folder of one that never came to anything goes with it.
    """
    for path in sorted(home.sessions.glob("*.lock")):
        lock = acquire(path, 0)
        if lock is None:
            continue
        with lock:
            yield path.stem
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it holds something
                path.with_suffix("").rmdir()


def _lock_of(home: Home, session: str) -> Path:
    return home.sessions / f"{session}.lock"
