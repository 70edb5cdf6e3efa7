"""Reads what the files of lib/ define, call and need: as much of the shell's grammar as that takes."""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

LIB = Path(__file__).resolve().parents[2] / "lib"
#: The line that begins a function, in bare code. A door may define it instead
FUNCTION = re.compile(r"(?:\[ -n _+ \] \|\| )?([a-z][a-z0-9_]*)\(\) [{(](.*)")


class Bare:
    """The code without comments, quoted text and expansions. What `$( )` and a trap's words run stays."""

    def __init__(self, text):
        self.text, self.out = text, []
        self.code(0, False)
        self.result = "".join(self.out)

    def code(self, i, within):
        text, depth = self.text, 0
        while i < len(text):
            char = text[i]
            if char == ")" and within and not depth:
                return i + 1
            if char == "#" and text[i - 1].isspace():
                i = text.index("\n", i)
            elif char == "\\":
                self.out.append("_")
                i += 2
            elif char == "'":
                end = text.index("'", i + 1)
                self.out.append(f" ; {text[i + 1:end]} ; " if self.trapped(i) else "_")
                i = end + 1
            elif char == '"':
                i = self.quoted(i + 1, self.trapped(i))
            elif char == "$":
                i = self.expansion(i)
            else:
                depth += (char == "(") - (char == ")" and depth > 0)
                self.out.append(char)
                i += 1
        return i

    def trapped(self, i):
        return self.text.endswith(" trap ", 0, i)

    def quoted(self, i, keep):
        self.out.append(" ; " if keep else "_")
        while self.text[i] != '"':
            if self.text[i] == "\\":
                i += 2
            elif self.text[i] == "$":
                i = self.expansion(i)
            else:
                if keep:
                    self.out.append(self.text[i])
                i += 1
        return i + 1

    def expansion(self, i):
        text = self.text
        if text.startswith("$((", i):
            return text.index("))", i) + 2
        if text.startswith("$(", i):
            self.out.append(" ; ")
            i = self.code(i + 2, True)
            self.out.append(" ; ")
            return i
        self.out.append("_")
        if not text.startswith("${", i):
            return re.compile(r"\$(\w+|.)").match(text, i).end()
        i += 2
        while text[i] != "}":
            if text[i] == "\\":
                i += 2
            elif text[i] == "'":
                i = text.index("'", i + 1) + 1
            elif text[i] == '"':
                i = self.quoted(i + 1, False)
            elif text[i] == "$":
                i = self.expansion(i)
            else:
                i += 1
        return i + 1


@dataclass
class File:
    """`functions`: {name: bare code}; under "" what is outside of all functions."""

    title: str
    functions: dict

    def needs(self, function, word="need|part_read"):
        """[(position, part)] of the function."""
        found = re.finditer(rf"\b(?:{word})((?: [a-z][a-z/-]*)+)", self.functions[function])
        return [(match.start(), part) for match in found for part in match[1].split()]

    @property
    def at_once(self):
        """The parts that it loads when it is loaded itself."""
        return [part for _, part in self.needs("")]


def read(path, title):
    functions, name = {"": []}, ""
    for line in Bare(path.read_text()).result.split("\n"):
        begins = not name and FUNCTION.match(line)
        if begins:
            functions[begins[1]] = [begins[2]]
            name = "" if begins[2].rstrip().endswith("}") else begins[1]
        else:
            functions[name].append(line)
            if re.match("[})]", line):
                name = ""
    return File(title, {name: "\n".join(lines) for name, lines in functions.items()})


@lru_cache
def files():
    """{title: File} of every part, engine/slip and so on, of every verb and door, and of launch."""
    found = [(path, str(path.relative_to(LIB)).removesuffix(".sh")) for path in sorted(LIB.rglob("*")) if path.is_file() and path.suffix in ("", ".sh")]
    return {title: read(path, title) for path, title in [*found, (LIB.parent / "launch", "launch")]}


@lru_cache
def owners():
    """{function: the part that defines it}, without what several files define: a door's own way of doing something."""
    found = {}
    for file in files().values():
        for name in file.functions:
            found.setdefault(name, []).append(file.title)
    return {name: titles[0] for name, titles in found.items() if len(titles) == 1}


@cache
def calls(title, function):
    """[(position, name)] of the functions that it calls, or hands to another as an argument. A name of one word counts only where a command begins."""
    code, found = files()[title].functions[function], []
    for match in re.finditer(r"(?<![\w./-])[a-z][a-z0-9_]*(?![\w./=-])", code):
        before = re.sub(r"(?:\w+=\S*[ \t]+)*$", "", code[:match.start()]).rstrip(" \t")
        begins = not before or before[-1] in "\n;|&({)!" or re.search(r"\b(if|then|else|elif|do|while|until)$", before)
        if match[0] in owners() and ("_" in match[0] or begins):
            found.append((match.start(), match[0]))
    return found
