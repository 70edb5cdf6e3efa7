"""Directories of links to the programs of other userlands, or to this one's without some."""

import os
import shutil
import subprocess

COREUTILS = """base64 cat chmod cut date dd env head id ln ls md5sum mkdir mkfifo mktemp mv od
readlink rm rmdir sha1sum sha256sum sleep sort stat sync tail test touch tr true uname wc""".split()


def applets(place, program, listing):
    """Create `place` with a link for each name that `program LISTING ...` prints."""
    place.mkdir()
    for name in subprocess.run([program, *listing], stdout=subprocess.PIPE, text=True,
            check=True).stdout.split():
        (place / os.path.basename(name)).symlink_to(program)
    return place


def without(place, *hidden, path=None):
    """A PATH of one directory: links to all programs in `path` whose names do not begin like
    these."""
    place.mkdir()
    programs = {}
    for directory in (path or os.environ["PATH"]).split(":"):
        for program in os.listdir(directory) if os.path.isdir(directory) else ():
            programs.setdefault(program, f"{directory}/{program}")
    for program, target in programs.items():
        if not program.startswith(hidden):
            os.symlink(target, f"{place}/{program}")
    return str(place)


def alpine(place):
    """busybox after `apk add coreutils sed`. Debian's busybox has no flock, so util-linux's takes
    the place of Alpine's."""
    applets(place, shutil.which("busybox"), ["--list"])
    for name in (*COREUTILS, "sed", "flock"):
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(shutil.which(name))
    return place
