# SPDX-License-Identifier: Apache-2.0
"""Every source file begins with its licence tag; behind the interpreter line, where there is one."""
import os

import common

TAG = "SPDX-License-Identifier: Apache-2.0"
ENDINGS = (".c", ".h", ".def", ".am", ".ac", ".py", ".sh", ".sql", ".lua", "/Dockerfile")


def check(root):
    findings = []
    for path in common.tree_files(root, *ENDINGS):
        lines = common.read(root, path).split("\n")
        first = 1 if lines[0].startswith("#!") else 0
        if first >= len(lines) or TAG not in lines[first]:
            findings.append(f"{path}:{first + 1}: the licence tag is missing: {TAG}")
    return findings


PLANTS = [
    ("src/flow/planted.c", "/* Without. */\n"),
    ("tests/planted.sh", "#!/bin/sh\ntrue\n"),
    ("src/store/schema/9999_planted.sql", "select 1;\n"),
    ("src/flow/planted.h", "\n/* SPDX-License-Identifier: Apache-2.0 */\n"),
    (os.path.join("docker", "planted", "Dockerfile"), "FROM scratch\n"),
]

common.main(check, PLANTS)
