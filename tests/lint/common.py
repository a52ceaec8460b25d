# SPDX-License-Identifier: Apache-2.0
"""What the lints share.

A lint has a function check(root) that returns findings, "path:line: text", and a list of plants: files that break
its rule. Run without arguments it first proves itself - in a copy of the tree each plant must be found, and where
the plant stands - and then checks the tree itself ($top_srcdir, or the one it lies in).
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

TREES = ("src", "transports", "codecs", "tests", "docs", "docker", "examples")
SKIPPED = {".git", "autom4te.cache", "build-aux", "__pycache__", ".deps", ".libs", "_build", "_inst"}
GENERATED = {"configure", "configure~", "aclocal.m4", "config.h.in", "config.h", "config.log", "config.status",
             "Makefile", "Makefile.in", "libtool", "stamp-h1"}


def tree_root():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.environ.get("top_srcdir") or here


def tree_files(root, *endings):
    """Paths of the files of the project, sorted; only those with one of the endings, if there are any."""
    found = []
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"],
                                cwd=root, stdout=subprocess.PIPE, check=True).stdout.decode()
        found = [path for path in listed.split("\0") if path]
    else:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith("build")]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path for path in set(found)
                  if (not endings or path.endswith(endings)) and os.path.basename(path) not in GENERATED
                  and os.path.isfile(os.path.join(root, path)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_only(text):
    """C without comments, and with empty strings and characters; lines and columns stay where they are."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''

    def replace(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] + " " * (len(token) - 2) + token[0]
        return blank(match)
    return re.sub(pattern, replace, text, flags=re.S)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def self_test(check, plants):
    with tempfile.TemporaryDirectory() as root:
        source = tree_root()
        for path in tree_files(source):
            if path.split("/")[0] in TREES or "/" not in path:
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                shutil.copyfile(os.path.join(source, path), os.path.join(root, path))
        for path, text in plants:
            full = os.path.join(root, path)
            before = read(root, path) if os.path.exists(full) else None
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write((before or "") + text if before else text)
            found = [finding for finding in check(root) if finding.startswith(path + ":")]
            if not found:
                print(f"self-test: the violation planted in {path} was not found:\n{text}")
                return False
            if before is None:
                os.unlink(full)
            else:
                with open(full, "w", encoding="utf-8") as file:
                    file.write(before)
    return True


def main(check, plants, warn_only=False):
    if not self_test(check, plants):
        sys.exit(1)
    findings = check(tree_root())
    for finding in findings:
        print(("warning: " if warn_only else "") + finding)
    sys.exit(1 if findings and not warn_only else 0)
