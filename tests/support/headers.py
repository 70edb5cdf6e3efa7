"""Reads the verbs' headers; `headers.py README.md` writes the README's table of verbs anew from
them, between `<!-- verbs -->` and `<!-- /verbs -->`."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

LIB = Path(__file__).resolve().parents[2] / "lib"


@dataclass
class Header:
    """`verb`, its `arguments` and what it does (`text`) from the first lines; options as (letter,
    name, value, text); sections by name."""

    verb: str
    arguments: str
    text: str
    options: list = field(default_factory=list)
    sections: dict = field(default_factory=dict)


def header(path):
    """The header of one executable; ValueError where its title is not `# VERB ARGUMENTS - text`."""
    lines = path.read_text().split("\n")
    end = lines.index("#") if "#" in lines else 2
    title = " ".join(line.lstrip("# ") for line in lines[1:end])
    first = re.fullmatch(r"(\S+) ?(.*?) - (.+)", title)
    if not lines[0].startswith("#!/bin/sh") or not first:
        raise ValueError(f"{path}: not the form `# VERB ARGUMENTS - text`: {title}")
    found = Header(*first.groups())
    section = None
    for line in lines[end:]:
        if not line.startswith("#"):
            break
        option = re.fullmatch(r"#   (-\w), (--[a-z0-9-]+)(?: ([A-Z]\S*))?  +(.+)", line)
        name = re.match(r"# (Example|Exit|Files|Order|Crash): +", line)
        if line == "#":
            section = None
        elif name:
            section = name[1]
            found.sections[section] = line[name.end():]
        elif section:
            found.sections[section] += " " + line.lstrip("# ")
        elif option:
            found.options.append((option[1], option[2], option[3] or "", option[4]))
        elif found.options and line.startswith("#      "):
            found.options[-1] = (*found.options[-1][:3],
                found.options[-1][3] + " " + line.lstrip("# "))
    return found


def verbs():
    """The verbs in the order in which `flatq -h` lists them."""
    return " ".join(re.findall(r"^verbs_\w+='(.*)'$", (LIB / "flatq").read_text(), re.M)).split()


def documented():
    """The variables that the man page has under ENVIRONMENT, where a user looks."""
    page = subprocess.run(["awk", "-f", LIB / "man/flatq.awk", LIB / "flatq"],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    return set(re.findall(r"^\.B ([A-Z_]+)$", page.partition(".SH ENVIRONMENT")[2].partition(".SH")[
        0], re.M))


def filled(page):
    """The page with the table of verbs as it should be."""
    rows = [f"| `{verb}` | {header(LIB / verb).text} |\n" for verb in verbs()]
    begin, _, rest = page.partition("<!-- verbs -->\n")
    end = rest[rest.index("<!-- /verbs -->"):]
    return "".join([begin, "<!-- verbs -->\n| verb | what it does |\n| --- | --- |\n", *rows, end])


if __name__ == "__main__":
    readme = Path(sys.argv[1])
    readme.write_text(filled(readme.read_text()))
