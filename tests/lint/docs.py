# SPDX-License-Identifier: Apache-2.0
"""What README.md, the texts at the top and docs/*.md name in backticks, or link to, exists.

A word in backticks is a path when it begins with one of the top folders; `path:name` must also be found in that file.
Words with a placeholder (<, *, …, {) are left alone. Folder READMEs are held to the same rule.
"""
import os
import re

import common

FOLDERS = ("src/", "transports/", "codecs/", "tests/", "docs/", "docker/", "examples/", ".ci/")
# Where folders of the top are named by themselves.
TOPS = tuple(folder.rstrip("/") for folder in FOLDERS)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
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


def check(root):
    findings = []
    for page in pages(root):
        for number, line in enumerate(common.read(root, page).split("\n"), 1):
            for path, name in named(line):
                if not os.path.exists(os.path.join(root, path)):
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
    ("docs/planted.md", "See `src/flow/planted.c`.\n"),
    ("README.md", "\nRun `tests/planted --all` first.\n"),
    ("docs/planted.md", "Shown by `tests/lint/docs.py:no_such_" + "test`.\n"),
    ("docs/planted.md", "[More](planted-too.md).\n"),
    ("src/flow/README.md", "\n| `src/flow/planted.c` | nothing |\n"),
]

common.main(check, PLANTS)
