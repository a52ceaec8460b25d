# SPDX-License-Identifier: Apache-2.0
"""docs/codes.md says what src/base/codes.def says. `codes.py --write` makes it anew.

That a code used exists is the compiler's to say; a code that nobody uses is only a warning.
"""
import os
import re
import sys

import common

TABLE = "src/base/codes.def"
PAGE = "docs/codes.md"
STRING = r'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(rf'^CODE\((\w+),\s*{STRING},\s*(INFO|WARNING|ERROR),\s*{STRING},\s*{STRING}\)$')


def parse(root):
    codes, findings = [], []
    for number, line in enumerate(common.read(root, TABLE).split("\n"), 1):
        if not line.startswith("CODE("):
            continue
        match = LINE.match(line)
        if not match:
            findings.append(f"{TABLE}:{number}: not CODE(NAME, \"text\", SEVERITY, \"meaning\", \"action\")")
            continue
        name, text, severity, meaning, action = [part.replace('\\"', '"') for part in match.groups()]
        if not re.match(r"SUTRA(\.[A-Z][A-Z0-9_]*)+$", text):
            findings.append(f"{TABLE}:{number}: {text} is not SUTRA. and dotted capitals")
        if any(text == code[1] for code in codes):
            findings.append(f"{TABLE}:{number}: {text} stands there twice")
        codes.append((name, text, severity, meaning, action))
    return codes, findings


def page(codes):
    lines = ["# Diagnostic codes", "",
             "Every code that the log, the admin API, dead letters and `sutra` commands may show, what it means and what to",
             "do. This page is generated from `" + TABLE + "`: `make codes` writes it.", ""]
    family = None
    for _, text, severity, meaning, action in sorted(codes, key=lambda code: code[1]):
        if text.split(".")[1] != family:
            family = text.split(".")[1]
            lines += ([""] if lines[-1] else []) + ["## " + family, "", "| code | severity | meaning | what to do |",
                                                     "|---|---|---|---|"]
        cells = [f"`{text}`", severity.lower(), meaning, action]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def check(root):
    codes, findings = parse(root)
    have = common.read(root, PAGE) if os.path.exists(os.path.join(root, PAGE)) else ""
    if have != page(codes):
        findings.append(f"{PAGE}:1: differs from {TABLE}: run `make codes`")
    return findings


def unused(root):
    used = set()
    for path in common.tree_files(root, ".c", ".h"):
        if path.split("/")[0] in ("src", "codecs", "transports"):
            used |= set(re.findall(r"\bCODE_(\w+)", common.code_only(common.read(root, path))))
    return [name for name, *_ in parse(root)[0] if name not in used]


PLANTS = [
    (PAGE, "one more line\n"),
    (TABLE, 'CODE(PLANTED, "SUTRA.planted", ERROR, "Meaning.", "Action.")\n'),
    (TABLE, 'CODE(PLANTED, "SUTRA.PLANTED", GRAVE, "Meaning.", "Action.")\n'),
    (TABLE, 'CODE(TWICE, "SUTRA.ADMIN.NOT_FOUND", ERROR, "Meaning.", "Action.")\n'),
]

if "--write" in sys.argv:
    with open(os.path.join(common.tree_root(), PAGE), "w", encoding="utf-8") as out:
        out.write(page(parse(common.tree_root())[0]))
    sys.exit(0)
for code in unused(common.tree_root()):
    print(f"warning: CODE_{code} is used nowhere")
common.main(check, PLANTS)
