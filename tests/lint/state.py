# SPDX-License-Identifier: Apache-2.0
"""No mutable state at file scope, in static locals or per thread outside base: everything hangs off an object, so
that a test or the simulator can have as many services as it likes."""
import re

import common

FUNCTION_POINTER = re.compile(r"\(\s*\*\s*(const\b)?")


def is_mutable(declaration):
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)|\b(UNUSED|NORETURN|MUST_CHECK)\b", " ", declaration, flags=re.S)
    text = text.split("=")[0].strip()
    if not text or re.match(r"(typedef|extern|_Static_assert)\b", text):
        return False
    if "(" in text:
        pointer = FUNCTION_POINTER.search(text)
        # A prototype or a macro, unless it declares a pointer to functions; whose own parameters do not count.
        return bool(pointer and text.index("(") == pointer.start() and not pointer.group(1)
                    and re.search(r"\w\s*$", text[:pointer.start()]))
    text = re.sub(r"\[.*", "", text, flags=re.S)
    words = re.findall(r"\w+|\*", text)
    if re.match(r"(static\s+)?(const\s+)?(struct|union|enum)\b\s*\w*\s*(\{\})?$", text) or len(words) < 2:
        return False
    return "const" not in re.findall(r"\w+", text.rsplit("*", 1)[-1] if "*" in text else text)


def statements(text):
    """Pairs of (offset, declaration) at file scope, and of the static ones inside functions."""
    depth = start = 0
    current = ""
    in_function = False
    body_start = 0
    for offset, char in enumerate(text):
        if char == "{":
            if depth == 0:
                in_function = current.rstrip().endswith(")") and "=" not in current
                body_start = offset
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0 and not in_function:
                current += "{}"
            elif depth == 0:
                body = text[body_start:offset]
                for match in re.finditer(r"\b(?:static|_Thread_local|__thread)\b[^;{]*", body):
                    yield body_start + match.start(), match.group(0)
                current = ""
        elif depth == 0:
            if char == ";":
                yield start, current
                current = ""
            else:
                if not current.strip():
                    start = offset
                    current = ""
                current += char


def check(root):
    findings = []
    for path in common.tree_files(root, ".c", ".h"):
        if path.split("/")[0] not in ("src", "codecs", "transports") or path.startswith("src/base/"):
            continue
        text = common.code_only(common.read(root, path))
        text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", common.blank, text, flags=re.M)
        for offset, declaration in statements(text):
            if is_mutable(declaration):
                name = " ".join(declaration.split("=")[0].split())
                findings.append(f"{path}:{common.line_of(text, offset)}: mutable state: {name}")
    return findings


PLANTS = [
    ("src/flow/planted.c", "static int counter;\n"),
    ("src/flow/planted.c", "int counter = 3;\n"),
    ("src/flow/planted.c", "static const char *name;\n"),
    ("src/flow/planted.c", "static struct lane *lanes[4];\n"),
    ("src/flow/planted.c", "static const char *const fixed[] = {\"a\"};\nstatic struct { int a; } both;\n"),
    ("src/flow/planted.c", "static void (*hook)(void *arg);\n"),
    ("src/flow/planted.c", "static _Thread_local int mine;\n"),
    ("src/flow/planted.c", "int f(void)\n{\n\tstatic int calls = 0;\n\n\treturn ++calls;\n}\n"),
    ("codecs/json/planted.c", "static __thread char text[20];\n"),
]

for harmless in ("static const int limit = 3", "static const char *const names[]", "static int f(void *arg, int n)",
                 "struct lane", "struct lane {}", "enum {}", "static void (*const hook)(void)", "extern int x", "typedef int (*fn)(void)",
                 "static const struct codec json_codec"):
    assert not is_mutable(harmless), harmless

common.main(check, PLANTS)
