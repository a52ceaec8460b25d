# SPDX-License-Identifier: Apache-2.0
"""Each call that src/base/banned.h bans does not compile, and an assertion cannot be switched off."""
import os
import re
import shlex
import subprocess
import sys
import tempfile

import common

HEADER = "src/base/banned.h"


def compiles(header, text):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "planted.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        command = shlex.split(os.environ.get("CC") or "cc")
        return subprocess.run(command + ["-std=gnu11", "-D_GNU_SOURCE", "-DNDEBUG", "-fsyntax-only", "-include", header,
                                         path], stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    root = common.tree_root()
    header = os.path.join(root, HEADER)
    names = re.findall(r"BANNED\((\w+)\)$", common.read(root, HEADER), flags=re.M)
    findings = [] if len(names) > 10 else [f"{HEADER}: bans next to nothing"]
    # The other calls stand, so that a failure is the ban's doing.
    if not compiles(header, "#include <string.h>\nint f(const char *s);\nint f(const char *s) { return (int)strlen(s); }\n"):
        findings.append(f"{HEADER}: does not compile by itself")
    for name in names:
        if compiles(header, f"void f(char *a);\nvoid f(char *a)\n{{\n\t(void){name}(a);\n}}\n"):
            findings.append(f"{HEADER}: {name} compiles")
    if not compiles(header, "#ifdef NDEBUG\n#error assertions are off\n#endif\n"):
        findings.append(f"{HEADER}: NDEBUG gets through")
    print("\n".join(findings))
    sys.exit(1 if findings else 0)


main()
