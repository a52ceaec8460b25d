# SPDX-License-Identifier: Apache-2.0
"""What an operator does about failures: restore, cancel, complete, retry, replay, with the commands of `sutra`."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import Record, wait_until  # noqa: E402
from saga import Saga, dead_letters, dev, statuses, write_package  # noqa: E402

# Work as much as is asked for, a task for a person, a number that must be one, a message.
DESK = """<?xml version="1.0"?>
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:q="urn:sutra:q:1.0" targetNamespace="urn:t">
<process id="Desk" isExecutable="true">
<extensionElements><q:variables><q:variable name="n" type="integer"/><q:variable name="total" type="any"/>
<q:variable name="id" type="string" source="payload.id"/>
<q:variable name="secret" type="string" sensitive="true"/></q:variables></extensionElements>
<startEvent id="Asked"><extensionElements><q:source channel="requests"/>
<q:alias name="request" expression="payload.id" unique="true"/></extensionElements><messageEventDefinition/></startEvent>
<sequenceFlow id="f1" sourceRef="Asked" targetRef="Compute"/>
<scriptTask id="Compute" name="Work it out" scriptFormat="lua"><script>n = 0
secret = "hush"
for i = 1, payload.rounds or 1 do n = n + 1 end</script></scriptTask>
<sequenceFlow id="f2" sourceRef="Compute" targetRef="Approve"/>
<userTask id="Approve" name="Approve it"><extensionElements><q:source channel="approvals"/>
<q:alias name="request" expression="payload.id"/></extensionElements></userTask>
<sequenceFlow id="f3" sourceRef="Approve" targetRef="Apply"/>
<scriptTask id="Apply" scriptFormat="lua"><script>total = payload.total + 0</script></scriptTask>
<sequenceFlow id="f4" sourceRef="Apply" targetRef="Tell"/>
<sendTask id="Tell"><extensionElements><q:send channel="told" body="{id = id, total = total}"/></extensionElements></sendTask>
<sequenceFlow id="f5" sourceRef="Tell" targetRef="End"/><endEvent id="End"/></process></definitions>
"""


class Operator(harness.Case):
    timeout = 120

    def replica(self, config=None, hold="PT30S"):
        self.database = self.postgres()
        self.migrate(self.database)
        self.saga = Saga(None, self.folder(), create=False)
        self.package = write_package(
            os.path.join(self.folder(), "desk"),
            [{"name": "requests", "transport": "kafka", "bind": "requests"},
             {"name": "approvals", "transport": "kafka", "bind": "approvals",
              "unmatched": {"hold": hold, "then": "dead-letter"}},
             {"name": "told", "direction": "outbound", "transport": "kafka", "bind": "told"}],
            {"desk.bpmn": DESK}, "desk")
        self.settings = {"instance.claim-timeout": "PT60S", **(config or {})}
        self.engine = dev(self, self.saga, self.database, self.settings, packages=[self.package])

    def another(self, config):
        """The replica goes, one with other settings comes."""
        self.engine.terminate()
        self.engine = dev(self, self.saga, self.database, {**self.settings, **config}, packages=[self.package])

    def call(self, *arguments, code=0, stdin=None):
        done = harness.sutra(*arguments, "--url", f"http://127.0.0.1:{self.engine.port}", check=False, stdin=stdin,
                             env={"SUTRA_ADMIN_KEY": self.engine.KEY})
        self.assertEqual(code, done.returncode, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stderr if code else done.stdout

    def ask(self, **payload):
        self.saga.kafka.produce("requests", [Record(payload["id"], json.dumps(payload))])

    def approve(self, **payload):
        self.saga.kafka.produce("approvals", [Record(payload["id"], json.dumps(payload))])

    def wait_status(self, status, count=1):
        wait_until(lambda: statuses(self.database).get(status, 0) == count, 20, f"{count} {status}")

    def instance(self):
        return self.database.psql("select id from sutra.instance")[0][0]

    def letter(self):
        letters = self.database.psql("select id from sutra.dead_letter")
        self.assertEqual(1, len(letters))
        return letters[0][0]

    def test_a_first_step_is_restored_when_its_cause_is_gone(self):
        self.replica({"expression.max-instructions": 10000})
        self.ask(id="r-1", rounds=100000)
        self.wait_status("FAILED")
        instance, letter = self.instance(), self.letter()
        table = self.call("instances", "list", "--status", "FAILED")
        self.assertIn(instance, table)
        self.assertIn("SUTRA.EXPRESSION.LIMIT", table)
        text = self.call("instances", "show", instance)
        self.assertIn("FAILED at Compute: SUTRA.EXPRESSION.LIMIT", text)
        self.assertIn("aliases: request = r-1 (unique)", text)
        self.assertIn("└─ Asked (start event): its first step is to be run", text)
        said = self.call("dead-letters", "replay", letter, code=1)
        self.assertIn("SUTRA.ADMIN.REPLAY.INSTANCE_EXISTS", said)
        self.assertIn(instance, said)
        said = self.call("instances", "restore", instance, code=1)
        self.assertIn("SUTRA.ADMIN.RESTORE.FAILED_AGAIN", said)
        self.assertIn("do: ", said)
        self.assertEqual(letter, self.letter())
        self.another({"expression.max-instructions": 10000000})
        self.assertIn("SUSPENDED", self.call("instances", "restore", instance))
        # What it failed with has its effect now.
        self.assertEqual({}, dead_letters(self.database))
        text = self.call("instances", "show", instance)
        self.assertIn('└─ Approve "Approve it" (user task): waits for a message on approvals, request = r-1', text)
        self.assertIn("variables: ", text)
        self.assertIn('secret = "***"', text)
        self.assertNotIn("hush", text)
        self.assertIn("NOT_FAILED", self.call("instances", "restore", instance, code=1))
        self.assertIn("COMPLETED", self.call("instances", "complete", instance, "Approve", "--payload", '{"id": "r-1", "total": 7}'))
        told = wait_until(lambda: self.saga.kafka.consume("told"), 20, "what is told")
        self.assertEqual({"id": "r-1", "total": 7}, told[0].json())
        self.assertEqual(0, self.database.count("select count(*) from sutra.wait"))
        self.assertIn("NOT_WAITING", self.call("instances", "complete", instance, "Approve", code=1))

    def test_a_later_step_is_restored_and_its_message_replayed(self):
        self.replica()
        self.ask(id="r-1")
        self.wait_status("SUSPENDED")
        self.approve(id="r-1", total="no number")
        self.wait_status("FAILED")
        instance, letter = self.instance(), self.letter()
        self.assertIn("INSTANCE_EXISTS", self.call("dead-letters", "replay", letter, code=1))
        self.call("instances", "restore", instance)
        # The message is as wrong as it was: it fails again, and there is one dead letter still.
        self.assertIn("replay:" + letter + ":1", self.call("dead-letters", "replay", letter))
        self.wait_status("FAILED")
        self.assertEqual(letter, self.letter())
        show = self.call("dead-letters", "show", letter)
        self.assertIn("SUTRA.INBOUND.NON_IDEMPOTENT_FAILURE", show)
        self.assertIn('"total": "no number"', show)
        self.assertRegex(show, r"replays +1\n")
        self.call("instances", "restore", instance)
        said = self.call("instances", "complete", instance, "Approve", "--payload", '{"total": "x"}', code=1)
        self.assertEqual("", said)
        self.call("instances", "restore", instance)
        self.assertIn("COMPLETED", self.call("instances", "complete", instance, "Approve", "--payload-file", "-",
                                              stdin='{"total": 8}'))

    def test_what_came_too_early_is_replayed(self):
        self.replica(hold="PT0.2S")
        self.approve(id="r-1", total=3)
        wait_until(lambda: dead_letters(self.database).get("SUTRA.RUNTIME.RELAY.CORRELATION_NOT_FOUND") == 1, 20, "its dead letter")
        letter = self.letter()
        self.assertIn(letter, self.call("dead-letters", "list"))
        self.ask(id="r-1")
        self.wait_status("SUSPENDED")
        answer = json.loads(self.call("dead-letters", "replay", letter, "--json"))
        self.assertEqual((1, "approvals"), (answer["replay"], answer["channel"]))
        self.assertIn("UNDER_WAY", self.call("dead-letters", "replay", letter, code=1))
        self.wait_status("COMPLETED")
        self.assertEqual({}, dead_letters(self.database))
        self.assertEqual(0, self.database.count("select count(*) from sutra.inbox_message"))
        self.assertEqual(3, self.saga.kafka.consume("told", 1)[0].json()["total"])
        self.assertIn("NOT_FOUND", self.call("dead-letters", "replay", letter, code=1))

    def test_a_claim_is_in_the_way_of_a_cancel(self):
        self.replica()
        self.ask(id="r-1")
        self.wait_status("SUSPENDED")
        instance = self.instance()
        self.database.psql(f"update sutra.instance set claim_owner = 'other-1-abc-s0', claim_at = now() where id = '{instance}'")
        said = self.call("instances", "cancel", instance, code=1)
        self.assertIn("SUTRA.ADMIN.CANCEL.CLAIM_HELD", said)
        self.assertIn("other-1-abc-s0", said)
        self.assertIn("claimed by other-1-abc-s0", self.call("instances", "show", instance))
        self.assertEqual({"SUSPENDED": 1}, statuses(self.database))
        bounces = sum(self.engine.metric("sutra_lane_claim_bounces_total", lane=str(lane), kind="admin") or 0
                      for lane in range(int(self.engine.wait_ready()["checks"][0]["data"]["shards"])))
        self.assertEqual(1, bounces)
        self.database.psql(f"update sutra.instance set claim_owner = null, claim_at = null where id = '{instance}'")
        self.assertIn("TERMINATED", self.call("instances", "cancel", instance))
        for table in ("wait", "alias"):
            self.assertEqual(0, self.database.count(f"select count(*) from sutra.{table}"), table)
        self.assertEqual(0, self.database.count("select count(*) from sutra.instance where claim_owner is not null"))
        self.assertIn("NOT_LIVE", self.call("instances", "cancel", instance, code=1))
        # The alias is free again.
        self.ask(id="r-1", again=True)
        self.wait_status("SUSPENDED")
        self.assertEqual("", self.call("instances", "list", "--status", "FAILED"))
        self.assertEqual(2, len(json.loads(self.call("instances", "list", "--all", "--json"))["instances"]))
        found = json.loads(self.call("instances", "list", "--alias", "request=r-1", "--json"))["instances"]
        self.assertEqual(["SUSPENDED"], [one["status"] for one in found])
        self.assertIn("More: --cursor ", self.call("instances", "list", "--all", "--limit", "1"))

    def test_a_poisoned_row_is_sent_after_all(self):
        self.replica()
        self.ask(id="r-1")
        self.wait_status("SUSPENDED")
        row = "00000000-0000-0000-0000-00000000000a"
        self.database.psql(
            "insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, deployment_id, required, "
            "created_at, attempt_count, next_attempt_at, poisoned, last_diagnostic_json, body, headers, record_key, content_type) "
            f"select id, 'told', 99, 0, tenant, '{row}', deployment_id, false, now(), 5, now(), true, "
            "'{\"code\":\"SUTRA.OUTBOUND.DELIVERY_ATTEMPTS_EXHAUSTED\"}', '{}', '\\x90', 'k', 'application/json' from sutra.instance")
        table = self.call("outbox", "list")
        self.assertIn("poisoned", table)
        self.assertIn("DELIVERY_ATTEMPTS_EXHAUSTED", table)
        self.assertIn("was poisoned after 5 attempts", self.call("outbox", "retry", row))
        wait_until(lambda: self.database.count("select count(*) from sutra.outbox_entry") == 0, 20, "it to be sent")
        self.assertEqual(row, self.saga.kafka.consume("told", 1)[0].header("sutra-outbox-key"))
        self.assertIn("NOT_FOUND", self.call("outbox", "retry", row, code=1))

    def test_what_is_called_wrongly(self):
        for words in (["instances"], ["instances", "dance"], ["instances", "show"], ["instances", "list", "x"],
                      ["instances", "cancel", "x", "--status", "FAILED"], ["instances", "cancel", "x", "--payload", "1"],
                      ["instances", "list", "--alias", "novalue"], ["instances", "complete", "x"], ["outbox", "retry"],
                      ["outbox", "sort"], ["dead-letters", "list", "x"], ["dead-letters", "burn", "x"],
                      ["instances", "complete", "x", "y", "--payload", "1", "--payload-file", "z"]):
            done = harness.sutra(*words, check=False, env={"SUTRA_ADMIN_URL": "http://127.0.0.1:9", "SUTRA_ADMIN_KEY": "k"})
            self.assertEqual((2, ""), (done.returncode, done.stdout), words)
            self.assertIn(f"sutra {words[0]}: ", done.stderr)
        done = harness.sutra("instances", "list", check=False,
                             env={"SUTRA_ADMIN_URL": "http://127.0.0.1:9", "SUTRA_ADMIN_KEY": "k"})
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("http://127.0.0.1:9: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
