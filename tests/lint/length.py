# SPDX-License-Identifier: Apache-2.0
"""Reports files over 900 lines and functions over 120: a question to the design, not an error."""
import re

import common

FILE_LINES = 900
FUNCTION_LINES = 120


def check(root):
    findings = []
    for path in common.tree_files(root, ".c", ".h"):
        lines = common.code_only(common.read(root, path)).split("\n")
        if len(lines) - 1 > FILE_LINES:
            findings.append(f"{path}:1: {len(lines) - 1} lines")
        start = None
        for number, line in enumerate(lines, 1):
            if line.startswith("{"):
                start = number
            elif line.startswith("}") and start:
                if number - start - 1 > FUNCTION_LINES:
                    name = re.search(r"(\w+)\s*\(", " ".join(lines[max(0, start - 4):start - 1]) or " ")
                    findings.append(f"{path}:{start}: {name.group(1) if name else 'a function'} has"
                                    f" {number - start - 1} lines")
                start = None
    return findings


PLANTS = [
    ("src/flow/planted.c", "int f(void)\n{\n" + "\tg();\n" * 121 + "}\n"),
    ("src/flow/planted.c", "/* */\n" * 901),
]

common.main(check, PLANTS, warn_only=True)
