# SPDX-License-Identifier: Apache-2.0
"""Broken packages: refused with file, line and code; the replica that finds one stays up and serves the others."""

import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import sutra, wait_until  # noqa: E402
from saga import Saga, dev, statuses, store  # noqa: E402

GOOD_CHANNELS = 'channels = (\n  { name = "in"; transport = "local"; }\n);\n'
GOOD_PACKAGE = 'tenant = "default";\nmodule = "broken";\nversion = "1";\n'


def process(body, doctype=""):
    return (
        f'<?xml version="1.0"?>\n{doctype}<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" '
        'xmlns:q="urn:sutra:q:1.0" targetNamespace="urn:t">\n<process id="P" isExecutable="true">\n' + body +
        "\n</process></definitions>\n"
    )


START = '<startEvent id="S"><extensionElements><q:source channel="in"/></extensionElements></startEvent>\n'
GOOD = START + '<sequenceFlow id="f" sourceRef="S" targetRef="E"/>\n<endEvent id="E"/>'
BOMB = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>\n'

# name: package.conf, channels.conf, bpmn/p.bpmn, then file, line and code of the finding that must come.
BROKEN = {
    "unknown-key": (GOOD_PACKAGE, GOOD_CHANNELS.replace('"local";', '"local";\n    colour = "red";'), process(GOOD),
                    "channels.conf", 3, "SUTRA.CONFIG.CHANNEL.INVALID"),
    "wrong-type": (GOOD_PACKAGE, GOOD_CHANNELS.replace('"local";', '"local";\n    max-in-flight = "many";'), process(GOOD),
                   "channels.conf", 3, "SUTRA.CONFIG.CHANNEL.INVALID"),
    "wrong-version": (GOOD_PACKAGE.replace('"1"', "1"), GOOD_CHANNELS, process(GOOD),
                      "package.conf", 3, "SUTRA.CONFIG.PACKAGE.INVALID"),
    "dangling-flow": (GOOD_PACKAGE, GOOD_CHANNELS, process(GOOD.replace('targetRef="E"', 'targetRef="Nowhere"')),
                      "bpmn/p.bpmn", 5, "SUTRA.CONFIG.BPMN.INVALID"),
    "two-starts": (GOOD_PACKAGE, GOOD_CHANNELS,
                   process(GOOD + "\n" + START.replace('id="S"', 'id="S2"')
                           + '<sequenceFlow id="g" sourceRef="S2" targetRef="E"/>'),
                   "bpmn/p.bpmn", 7, "SUTRA.INBOUND.AMBIGUOUS_HANDLER"),
    "syntax-error": (GOOD_PACKAGE, GOOD_CHANNELS,
                     process(GOOD.replace('channel="in"/>', 'channel="in" \ndedupKey="payload..id)"/>')),
                     "bpmn/p.bpmn", 5, "SUTRA.CONFIG.EXPRESSION.INVALID"),
    "entity-bomb": (GOOD_PACKAGE, GOOD_CHANNELS, process(GOOD.replace('id="E"', 'id="E" name="&c;"'), BOMB),
                    "bpmn/p.bpmn", 2, "SUTRA.CONFIG.BPMN.INVALID"),
    "include": (GOOD_PACKAGE, '@include "/etc/passwd"\n' + GOOD_CHANNELS, process(GOOD),
                "channels.conf", 1, "SUTRA.CONFIG.CHANNEL.INVALID"),
    "symlink": (GOOD_PACKAGE, GOOD_CHANNELS, None, "bpmn/p.bpmn", None, "SUTRA.CONFIG.PACKAGE.INVALID"),
}


def write_broken(folder, name):
    package, channels, bpmn = BROKEN[name][:3]
    os.makedirs(os.path.join(folder, "bpmn"))
    texts = {"package.conf": package.replace('"broken"', f'"{name}"'), "channels.conf": channels}
    if bpmn is None:
        os.symlink("/etc/passwd", os.path.join(folder, "bpmn", "p.bpmn"))
    else:
        texts["bpmn/p.bpmn"] = bpmn
    for path, text in texts.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as out:
            out.write(text)
    return folder


class Lint(harness.Case):
    timeout = 60

    def test_the_good_one_is_good(self):
        folder = self.folder()
        BROKEN["good"] = (GOOD_PACKAGE, GOOD_CHANNELS, process(GOOD))
        self.addCleanup(BROKEN.pop, "good")
        done = sutra("lint", write_broken(os.path.join(folder, "good"), "good"))
        self.assertEqual("", done.stdout)

    def test_each_is_refused_with_file_line_and_code(self):
        for name, (_, _, _, file, line, code) in BROKEN.items():
            with self.subTest(name):
                folder = write_broken(os.path.join(self.folder(), name), name)
                done = sutra("lint", folder, check=False)
                self.assertEqual(1, done.returncode, done.stdout + done.stderr)
                where = f"{folder}/{file}:{line}: " if line else f"{folder}: {code}: entry \"{file}\""
                found = [text for text in done.stdout.splitlines() if text.startswith(where) and code in text]
                self.assertTrue(found, f"no {where} … {code} in:\n{done.stdout}{done.stderr}")
                packaged = sutra("package", folder, "--out", self.folder(), check=False)
                self.assertEqual(1, packaged.returncode)


class Replica(harness.Case):
    timeout = 90

    def test_broken_packages_do_not_hurt_the_good_ones(self):
        database = self.postgres()
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        for name in BROKEN:
            write_broken(os.path.join(saga.packages, name), name)
        # The folder names the packages; dev's own would be those of its command line.
        engine = dev(self, saga, database, {"deployment.dir": saga.packages}, packages=[], ready=True)
        deployments = engine.get("/sutra/deployments?limit=1000")[1]["deployments"]
        phases = sorted(entry["phase"] for entry in deployments)
        self.assertEqual(["Active"] * 2 + ["Failed"] * len(BROKEN), phases)
        listed = engine.get("/admin/deployments?limit=1000")[1]["deployments"]
        reasons = "\n".join(entry["reasons"] or "" for entry in listed if entry["phase"] == "Failed")
        for name, (_, _, _, file, line, code) in BROKEN.items():
            self.assertIn(code, reasons)
        self.assertIn("bpmn/p.bpmn:5", reasons)
        orders = saga.orders(5)
        saga.send_orders(orders)
        saga.wait_parked(database, 5)
        saga.send_payments(orders)
        saga.wait_done(database, 5)
        saga.account(self, database, orders)
        self.assertEqual(0, engine.terminate())

    def test_a_broken_new_version_leaves_the_old_one_active(self):
        database = self.postgres()
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        config = {"deployment.dir": saga.packages, **store(database)}
        engine = self.sutra(config)
        before = {entry["id"]: entry["phase"] for entry in engine.get("/sutra/deployments")[1]["deployments"]}
        engine.terminate()
        with open(os.path.join(saga.saga_package, "bpmn", "order.bpmn"), "a", encoding="utf-8") as out:
            out.write("<oops")
        engine.start()
        after = engine.get("/sutra/deployments")[1]["deployments"]
        self.assertEqual(before, {entry["id"]: entry["phase"] for entry in after if entry["phase"] == "Active"})
        self.assertEqual(["Failed"], [entry["phase"] for entry in after if entry["phase"] != "Active"])

    def test_two_packages_of_one_module_put_each_other_out(self):
        database = self.postgres()
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        again = shutil.copytree(saga.saga_package, os.path.join(saga.packages, "again"))
        with open(os.path.join(again, "bpmn", "order.bpmn"), "a", encoding="utf-8") as out:
            out.write("<!-- another -->\n")
        engine = self.sutra({"deployment.dir": saga.packages, **store(database)})
        entries = engine.get("/admin/deployments")[1]["deployments"]
        self.assertEqual(["streams"], [entry["module"] for entry in entries if entry["phase"] == "Active"])
        self.assertEqual(2, sum("SUTRA.DEPLOY.CONFLICT" in (entry["reasons"] or "") for entry in entries))

    def test_what_is_still_pinned_drains_and_completes(self):
        database = self.postgres()
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        engine = dev(self, saga, database)
        old, new = saga.orders(5), saga.orders(5)
        saga.send_orders(old)
        saga.wait_parked(database, 5)
        first = {row[0] for row in database.psql("select deployment_id from sutra.instance")}
        self.assertEqual(0, engine.terminate())
        engine.close()

        saga.write("2.0.0")
        engine = dev(self, saga, database)
        phases = {(entry["module"], entry["version"]): entry["phase"]
                  for entry in engine.get("/sutra/deployments")[1]["deployments"] if entry["phase"] != "Retired"}
        self.assertEqual({("order-saga", "2.0.0"): "Active", ("streams", "2.0.0"): "Active",
                          ("order-saga", "1.0.0"): "Draining"}, phases)
        saga.send_orders(new)
        saga.wait_parked(database, 10)
        saga.send_payments(old + new)
        wait_until(lambda: statuses(database) == {"COMPLETED": 10}, 20, "both to complete")
        pins = dict(database.psql("select deployment_id, count(*) from sutra.instance group by 1"))
        self.assertEqual(2, len(pins))
        self.assertEqual({"5"}, {pins[one] for one in first})
        self.assertEqual(0, engine.terminate())
        engine.close()

        engine = dev(self, saga, database)
        phases = {entry["version"]: entry["phase"] for entry in engine.get("/sutra/deployments")[1]["deployments"]
                  if entry["module"] == "order-saga"}
        self.assertEqual({"1.0.0": "Retired", "2.0.0": "Active"}, phases)


if __name__ == "__main__":
    unittest.main()
