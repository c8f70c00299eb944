"""What a base consists of, and which parts of a host may be in one."""

import fnmatch
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import runtime
from runtime.execution.sandbox.sandboxd.config import ReadOnlyTree

SYSTEM_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
PACKAGES = "/var/lib/dpkg"
_ETC = (
    *("adduser.conf", "alternatives", "ca-certificates", "ca-certificates.conf"),
    *("apt/sources.list", "apt/sources.list.d", "apt/trusted.gpg.d", "apt/keyrings"),
    *("apt/preferences.d", "crypto-policies", "debconf.conf", "debian_version", "deluser.conf"),
    *("dpkg", "*-release", "fonts", "gai.conf", "host.conf", "inputrc", "java-*", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "locale.gen", "localtime"),
    *("login.defs", "magic", "magic.mime", "mailcap", "mime.types", "networks", "nsswitch.conf"),
    *("pam.conf", "pam.d", "perl", "pki/ca-trust", "pki/tls/certs", "protocols", "python3"),
    *("python3.*", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo"),
    *("timezone", "vim", "xattr.conf"),
)


@dataclass(frozen=True, slots=True)
class Root:
    """A directory tree of the sandbox: `lowers`, topmost first, under a writable layer."""

    target: str
    slug: str
    lowers: list[str]


@dataclass(frozen=True, slots=True)
class Layer:
    """Changes on top of a base: for each root's target, the directory that holds them."""

    paths: dict[str, str]


@dataclass(frozen=True, slots=True)
class Base:
    """A derived base."""

    directory: Path
    """Its folder among the bases."""
    digest: str
    facts: dict[str, object]
    """What the digest is of."""
    roots: list[Root]
    """`roots[0]` is /."""
    trees: list[ReadOnlyTree] = field(default_factory=list[ReadOnlyTree])


def etc_sources() -> Iterator[Path]:
    """The files and folders of /etc that a base may copy."""
    names = [path.name for path in Path("/etc").iterdir()]
    for pattern in _ETC:
        if "*" in pattern:
            yield from (Path("/etc", name) for name in sorted(fnmatch.filter(names, pattern)))
        else:
            yield Path("/etc", pattern)


def personal(state: Path) -> list[Path]:
    """Folders that no sandbox may see, wherever they are."""
    library = Path(runtime.__file__).parent.parent
    if (library / "pyproject.toml").exists():
        project = [library]
    else:
        project = [library / name for name in ("runtime", "specs", "proxy", "tools")]
    found = [*project, state, Path.home(), Path(sys.prefix)]
    return [path.resolve() for path in found if path.resolve() != Path("/usr")]
