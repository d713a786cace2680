"""Some servers refuse to run as root. In a container, where everybody is root, they run as `nobody`.

`nobody` must be able to reach the server's files. Where a folder on the way is closed to others (/root, or a
private temporary folder), the server gets the one capability that opens them.
"""

import os
import pwd
import shutil
import stat
from pathlib import Path

from tests.servers.errors import ServerError

USER = "nobody"


def give_to_ordinary_user(path: Path) -> None:
    if os.geteuid() == 0:
        user = pwd.getpwnam(USER)
        os.chown(path, user.pw_uid, user.pw_gid)


def as_ordinary_user(command: list[str], *reached: Path) -> list[str]:
    """The command that runs this command as an ordinary user, who reaches these paths."""
    if os.geteuid() != 0:
        return command
    tool = shutil.which("setpriv")
    if tool is None:
        raise ServerError("this server refuses root, and there is no setpriv to run it as nobody: install util-linux")
    user = pwd.getpwnam(USER)
    prefix = [tool, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    if not all(is_open_to_others(path) for path in reached):
        # Without the bit, programs that ask before they open (access(2)) are told no.
        prefix += ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return [*prefix, *command]


def is_open_to_others(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
