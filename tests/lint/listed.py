# SPDX-License-Identifier: Apache-2.0
"""Every committed source stands in a module.am: what does not is neither compiled nor in the archive."""
import os
import re
import subprocess

import common

FRAGMENTS = ("Makefile.am", "src/module.am", "transports/module.am", "codecs/module.am", "tests/module.am")
PLACES = re.compile(r"(src|transports|codecs|tests/unit|tests/support|tests/lint)/.*\.(c|h|def|sql|py)$")


def committed(root):
    if not os.path.exists(os.path.join(root, ".git")):
        return common.tree_files(root)
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-tree", "-r", "--name-only", "-z", "HEAD"], cwd=root,
                            stdout=subprocess.PIPE, check=True).stdout.decode()
    return [path for path in listed.split("\0") if path and os.path.exists(os.path.join(root, path))]


def check(root):
    words = set()
    for fragment in FRAGMENTS:
        words |= set(common.read(root, fragment).replace("$(srcdir)/", "").split())
    # A program of one source is listed by the name of the program; data trees are taken whole.
    return [f"{path}:1: stands in no module.am" for path in sorted(committed(root))
            if PLACES.match(path) and path not in words and os.path.splitext(path)[0] not in words]


PLANTS = [
    ("src/flow/planted.c", "/* */\n"),
    ("transports/kafka/planted.h", "/* */\n"),
    ("src/store/schema/9999_planted.sql", "-- \n"),
    ("tests/unit/base/test_planted.c", "/* */\n"),
]

common.main(check, PLANTS)
