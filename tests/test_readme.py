"""The README's console blocks, run as they stand: all in one shell, in order, and every line of output compared."""

import re
import subprocess

from conftest import LIB, ROOT


def blocks():
    return re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def test_session(tmp_path, spool):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/flatq").symlink_to(LIB / "flatq")
    wrapper = tmp_path / "bin/flatq"
    wrapper.unlink()
    wrapper.write_text(f'#!/bin/sh\nexec "{LIB}/flatq" "$@"\n')
    wrapper.chmod(0o755)
    # a door by itself, without a port: as inetd runs it
    (tmp_path / "lib").symlink_to(LIB)
    commands = [line[2:] for block in blocks() for line in block.splitlines() if line.startswith("$ ")]
    assert len(commands) > 10
    script = "".join(f"printf '%s\\n' {quote('$ ' + command)}\n{command}\ncode=$?; [ $code -eq 0 ] || echo \"[$code]\"\n" for command in commands)
    done = subprocess.run(
        ["sh"], input=script.encode(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "FLATQ_DIR": str(spool), "FLATQ_SYNC": "off"},
    )
    assert done.stdout.decode() == "".join(blocks())


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"
