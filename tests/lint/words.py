# SPDX-License-Identifier: Apache-2.0
"""Nothing in the project speaks of one machine, or of documents that its users do not have."""
import re

import common

# Written apart, so that this file does not speak of them either.
PAPERS = ["SPEC", "DESIGN", "STORE", "BROKERS", "KAFKA", "STYLE", "HELPERS"]
FORBIDDEN = [
    (re.compile(r"(?<![\w.])/(?:wor" r"k|roo" r"t|hom" r"e/\w+)(?:/|\b(?![-.\w]))"), "a path of one machine"),
    (re.compile(r"\.\./share" r"d\b"), "a path outside of the project"),
    (re.compile(r"(?<![\w/-])(?:" + "|".join(PAPERS) + r")\.m" r"d\b"), "a document that users do not have"),
    (re.compile(r"\b(?:TO" r"DO|FIX" r"ME)\b"), "unfinished work"),
]
ENDINGS_SKIPPED = (".png", ".zip", ".jar", ".gz", ".msgpack", ".bin")


def check(root):
    findings = []
    for path in common.tree_files(root):
        if path.endswith(ENDINGS_SKIPPED) or path.startswith("tests/fuzz/seeds/"):
            continue
        for number, line in enumerate(common.read(root, path).split("\n"), 1):
            for pattern, what in FORBIDDEN:
                match = pattern.search(line)
                if match:
                    findings.append(f"{path}:{number}: {match.group(0)}: {what}")
    return findings


PLANTS = [
    ("src/flow/planted.c", "/* See SPEC" + ".md 3. */\n"),
    ("docs/planted.md", "As in `../share" + "d/x`.\n"),
    ("tests/planted.sh", "cd /wor" + "k/main\n"),
    ("examples/planted.conf", "path = \"/hom" + "e/jane/data\"\n"),
    ("src/flow/planted.c", "/* TO" + "DO: later */\n"),
]

common.main(check, PLANTS)
