# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: dependencies between the directories go one way."""
import os
import re

import common

CONTRACTS = ["codecs/*", "codecs/cloudevents/cloudevents.h", "transports/*"]
# A name allows all of a directory below src or the root, "x/*" the headers directly in it, the rest one header.
ALLOWED = {
    "base": [],
    "value": ["base"],
    "config": ["base", "value"],
    # One reader for every file that a user writes.
    "model": ["base", "value", "config/document.h"],
    "engine": ["base", "value", "model"],
    "codecs": ["base", "value"],
    "transports": ["base", "value"],
    "store": ["base", "value", "model", "engine/instance.h"],
    "flow": ["base", "value", "config", "model", "engine", "codecs", "transports", "store",
             # The rows of a commit go on to the outbox of their replica.
             "outbox/outbox.h"],
    "outbox": ["base", "value", "model", "store/store.h"] + CONTRACTS,
    "capacity": ["base", "value", "model", "store/store.h"] + CONTRACTS,
    "roles": ["base", "value", "model", "store/store.h", "outbox", "capacity", "flow/lane_set.h"] + CONTRACTS,
    "admin": ["base", "value", "model", "store/store.h", "outbox", "capacity", "roles", "flow/inspect.h",
              "flow/lane_set.h",
              # What a replayed dead letter is as a message is known to those who run it.
              "flow/replay.h"] + CONTRACTS,
    "cli": ["base", "value", "config", "model", "codecs", "transports", "store", "outbox", "capacity", "roles", "admin",
            "service.h"],
}


def area_of(path):
    parts = path.split("/")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    return parts[0] if parts[0] in ("codecs", "transports") else None


def is_allowed(area, target):
    if target.split("/")[0] == area or target == "config.h":
        return True
    for rule in ALLOWED[area]:
        if rule == target or target.startswith(rule + "/"):
            return True
        if rule.endswith("/*") and os.path.dirname(target) == rule[:-2]:
            return True
    return False


def check(root):
    findings = []
    for path in common.tree_files(root, ".c", ".h"):
        if path.split("/")[0] not in ("src", "codecs", "transports"):
            continue
        area = area_of(path)
        for number, line in enumerate(common.read(root, path).split("\n"), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1)
            if target.startswith("tests/"):
                findings.append(f"{path}:{number}: includes {target}, of the tests")
            elif "/" not in target and target != "config.h" and not (area is None and target == "service.h"):
                if not (area == "cli" and target == "service.h"):
                    findings.append(f"{path}:{number}: write \"{target}\" from the root of src or of the tree")
            elif area is not None and area not in ALLOWED:
                findings.append(f"{path}:{number}: no rule says what {area} may include")
            elif area is not None and not is_allowed(area, target):
                findings.append(f"{path}:{number}: {area} may not include {target}")
    return findings


PLANTS = [
    ("src/base/planted.c", '#include "value/value.h"\n'),
    ("src/engine/planted.c", '#include "store/store.h"\n'),
    ("src/store/pg/planted.c", '#include "engine/step.h"\n'),
    ("src/outbox/planted.c", '#include "flow/turn.h"\n'),
    ("src/admin/planted.c", '#include "flow/turn.h"\n'),
    ("src/cli/planted.c", '#include "engine/step.h"\n'),
    ("codecs/json/planted.c", '#include "transports/transport.h"\n'),
    ("src/flow/planted.c", '#include "turn.h"\n'),
    ("src/flow/planted.h", '#include "tests/support/testing.h"\n'),
    ("src/novel/planted.c", '#include "base/str.h"\n'),
]

common.main(check, PLANTS)
