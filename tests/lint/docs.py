# SPDX-License-Identifier: Apache-2.0
"""What README.md, the texts at the top and docs/*.md name in backticks, or link to, exists.

A word in backticks is a path when it begins with one of the top folders; `path:name` must also be found in that file.
Programs of the build, as tests/module.am lists them, count as well; words with a placeholder (<, *, …, {) are left
alone. Folder READMEs are held to the same rule. And the man page has every command and each of its options.
"""
import os
import re

import common

FOLDERS = ("src/", "transports/", "codecs/", "tests/", "docs/", "docker/", "examples/", ".ci/")
# Where folders of the top are named by themselves.
TOPS = tuple(folder.rstrip("/") for folder in FOLDERS)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
MANUAL, COMMANDS = "docs/man/sutra.1", "src/cli/commands.h"
PLACEHOLDER = re.compile(r"[<>*…{}$]")


def pages(root):
    return [path for path in common.tree_files(root, ".md")
            if "/" not in path or path.startswith("docs/") or os.path.basename(path) == "README.md"]


def named(line):
    """Paths, from the top, that a line names in backticks, each with what must stand in it (or None)."""
    for code in CODE.findall(line):
        for word in code.split():
            word = word.rstrip(".,;:)")
            if PLACEHOLDER.search(word) or not (word.startswith(FOLDERS) or word in TOPS):
                continue
            path, _, name = word.partition(":")
            yield path, name or None


def manual(root):
    """The man page against the table of commands and the tables of their options."""
    page = common.read(root, MANUAL)
    entries = {}
    for entry in re.split(r"^\.It ", page, flags=re.M)[1:]:
        command = re.match(r"(?:Xo\n\.)?Cm (\w+)", entry)
        if command:
            entries[command.group(1)] = entry
    table = common.read(root, COMMANDS)
    for found in re.finditer(r"\bX\((\w+), \"", table):
        if found.group(1) not in entries:
            yield f"{COMMANDS}:{common.line_of(table, found.start())}: {found.group(1)} is not in {MANUAL}"
    for command, entry in entries.items():
        path = f"src/cli/{command}.c"
        if not os.path.exists(os.path.join(root, path)):
            continue
        source = common.read(root, path)
        for found in re.finditer(r'\{"([a-z][a-z-]*)", (?:\'(\w)\'|0), ', source):
            name, letter = found.groups()
            if f"Fl -{name}" not in entry and not (letter and f"Fl {letter}" in entry):
                yield f"{path}:{common.line_of(source, found.start())}: --{name} is not in {MANUAL}"


def check(root):
    findings = list(manual(root))
    programs = set(common.read(root, "tests/module.am").split())
    for page in pages(root):
        for number, line in enumerate(common.read(root, page).split("\n"), 1):
            for path, name in named(line):
                if not os.path.exists(os.path.join(root, path)):
                    if path not in programs:
                        findings.append(f"{page}:{number}: {path} does not exist")
                elif name and name not in common.read(root, path):
                    findings.append(f"{page}:{number}: {path} has no {name}")
            for target in LINK.findall(line):
                if "://" in target or target.startswith("mailto:"):
                    continue
                if not os.path.exists(os.path.join(root, os.path.dirname(page), target)):
                    findings.append(f"{page}:{number}: the link leads to {target}, which does not exist")
    return findings


PLANTS = [
    ("src/cli/version.c", 'static const struct cli_option planted[] = {{"planted", 0, NULL, "Nothing"}};\n'),
    ("src/cli/commands.h", '#define PLANTED(X) X(planted, "", "Nothing")\n'),
    ("docs/planted.md", "See `src/flow/planted.c`.\n"),
    ("README.md", "\nRun `tests/planted --all` first.\n"),
    ("docs/planted.md", "Shown by `tests/lint/docs.py:no_such_" + "test`.\n"),
    ("docs/planted.md", "[More](planted-too.md).\n"),
    ("src/flow/README.md", "\n| `src/flow/planted.c` | nothing |\n"),
]

common.main(check, PLANTS)
