# SPDX-License-Identifier: Apache-2.0
"""Channel calls through a whole replica: answered, timed out, tried again, given up; what is in the outbox afterwards."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import Record, wait_until  # noqa: E402
from saga import Saga, dev, statuses, write_package  # noqa: E402

# Ask the warehouse; what it says, or that it says nothing, is told.
CALL = """<?xml version="1.0"?>
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:q="urn:sutra:q:1.0" targetNamespace="urn:t">
<error id="Late" errorCode="CALL.TIMEOUT"/>
<process id="Ask" isExecutable="true">
<extensionElements><q:variables><q:variable name="id" type="string" source="payload.id or id"/></q:variables></extensionElements>
<startEvent id="Asked"><extensionElements><q:source channel="asked"/>
<q:alias name="ask" expression="payload.id" unique="true"/></extensionElements><messageEventDefinition/></startEvent>
<sequenceFlow id="f1" sourceRef="Asked" targetRef="Reserve"/>
<serviceTask id="Reserve" implementation="channel:stock"><extensionElements>
<q:source channel="stock-answers"/>
<q:alias name="req" expression="header['x-req']" value="uuid('req')"/>
<q:header name="x-req" value="uuid('req')"/>
<q:send body="{id = id}"/>
<q:timeout duration="@TIMEOUT@"/>@RETRY@</extensionElements></serviceTask>
<sequenceFlow id="f2" sourceRef="Reserve" targetRef="Tell"/>
<sendTask id="Tell"><extensionElements><q:send channel="told" body="{id = id, said = payload.said}"/></extensionElements></sendTask>
<sequenceFlow id="f3" sourceRef="Tell" targetRef="End"/><endEvent id="End"/>
<boundaryEvent id="OnLate" attachedToRef="Reserve"><errorEventDefinition errorRef="Late"/></boundaryEvent>
<sequenceFlow id="f4" sourceRef="OnLate" targetRef="TellLate"/>
<sendTask id="TellLate"><extensionElements><q:send channel="told" body="{id = id, said = 'nothing'}"/></extensionElements></sendTask>
<sequenceFlow id="f5" sourceRef="TellLate" targetRef="End"/></process></definitions>
"""


# Where nobody takes what is sent: it stays in the outbox.
AWAY = {"transport": "local", "bind": "nowhere"}


class Calls(harness.Case):
    timeout = 120

    def replica(self, timeout="PT30S", retry="", stock=None):
        self.database = self.postgres()
        self.migrate(self.database)
        self.saga = Saga(None, self.folder(), create=False)
        self.package = write_package(
            os.path.join(self.folder(), "ask"),
            [{"name": "asked", "transport": "kafka", "bind": "asked"},
             {"name": "stock-answers", "transport": "kafka", "bind": "stock-answers"},
             {"name": "stock", "direction": "outbound", **(stock or {"transport": "kafka", "bind": "stock"})},
             {"name": "told", "direction": "outbound", "transport": "kafka", "bind": "told"}],
            {"ask.bpmn": CALL.replace("@TIMEOUT@", timeout).replace("@RETRY@", retry)}, "ask")
        settings = {"outbox.retry.base-delay": "PT0.05S", "outbox.retry.max-delay": "PT0.2S"}
        self.engine = dev(self, self.saga, self.database, settings, packages=[self.package])

    def ask(self, name):
        self.saga.kafka.produce("asked", [Record(name, json.dumps({"id": name}))])

    def requests(self, count):
        def found():
            records = self.saga.kafka.consume("stock")
            return records if len(records) >= count else None

        return wait_until(found, 20, f"{count} requests")

    def answer(self, request, said):
        self.saga.kafka.produce("stock-answers", [Record("x", json.dumps({"said": said}), [("x-req", request.header("x-req"))])])

    def told(self, count):
        def found():
            records = self.saga.kafka.consume("told")
            return [record.json() for record in records] if len(records) >= count else None

        return wait_until(found, 30, f"{count} told")

    def waiting(self, channel="stock"):
        """Rows of the outbox on the channel."""
        return self.database.count(f"select count(*) from sutra.outbox_entry where channel = '{channel}'")

    def left(self):
        """Rows of the instances' own: waits, timers, aliases, outbox."""
        return self.database.psql("select (select count(*) from sutra.wait), (select count(*) from sutra.timer), "
                                  "(select count(*) from sutra.alias), (select count(*) from sutra.outbox_entry)")[0]

    def wait_status(self, status, count=1):
        wait_until(lambda: statuses(self.database).get(status, 0) == count, 30, f"{count} {status}")

    def test_the_answer_goes_to_its_request(self):
        self.replica()
        for name in ("a", "b"):
            self.ask(name)
        requests = self.requests(2)
        self.assertEqual(2, len({request.header("x-req") for request in requests}))
        said = {}
        for request in reversed(requests):
            said[request.json()["id"]] = f"to {request.json()['id']}"
            self.answer(request, said[request.json()["id"]])
        self.assertEqual(said, {item["id"]: item["said"] for item in self.told(2)})
        self.wait_status("COMPLETED", 2)
        wait_until(lambda: self.left() == ("0", "0", "0", "0"), 20, "nothing to be left")

    def test_after_its_time_an_unsent_request_is_taken_back(self):
        self.replica(timeout="PT2S", stock=AWAY)
        self.ask("a")
        self.wait_status("SUSPENDED")
        self.assertEqual(1, self.waiting())
        self.assertEqual([{"id": "a", "said": "nothing"}], self.told(1))
        self.wait_status("COMPLETED")
        wait_until(lambda: self.left() == ("0", "0", "0", "0"), 20, "nothing to be left")

    def test_with_its_instance_an_unsent_request_is_taken_back(self):
        self.replica(stock=AWAY)
        self.ask("a")
        self.wait_status("SUSPENDED")
        # Tried at least once: it is claimed, and waits for its next attempt.
        wait_until(lambda: self.database.count("select max(attempt_count) from sutra.outbox_entry") >= 1, 20, "an attempt")
        instance = self.database.value("select id from sutra.instance")
        status, _ = self.engine.post(f"/admin/instances/{instance}/cancel")
        self.assertEqual(200, status)
        self.assertEqual(0, self.waiting())
        self.wait_status("TERMINATED")
        # The publisher has let go of it, too.
        wait_until(lambda: self.engine.metric("sutra_outbox_rows", state="memory") == 0, 20, "the outbox to forget it")
        self.assertEqual(("0", "0", "0", "0"), self.left())

    def test_tried_again_by_a_durable_timer(self):
        self.replica(timeout="PT4S", retry='<q:retry maxAttempts="100" initialDelay="PT1S" backoffCoefficient="1.0"/>')
        self.ask("a")
        first = self.requests(1)[0]
        wait_until(lambda: self.database.psql("select count(*) from sutra.wait") == [("0",)] and
                   self.database.count("select count(*) from sutra.timer") == 1, 20, "the pause between two attempts")
        self.engine.kill()
        # The broker was the replica's own; so the next one has only what is sent from now on.
        self.engine = dev(self, self.saga, self.database, packages=[self.package])
        answered = {first.header("x-req")}

        def ended():
            """Each attempt is answered once; whichever is in time ends the call."""
            for request in self.requests(1):
                if request.header("x-req") not in answered:
                    answered.add(request.header("x-req"))
                    self.answer(request, "at last")
            return statuses(self.database).get("COMPLETED") == 1

        wait_until(ended, 60, "an attempt to be answered in time")
        self.assertGreaterEqual(len(answered), 2)
        self.assertEqual([{"id": "a", "said": "at last"}], self.told(1))
        wait_until(lambda: self.left() == ("0", "0", "0", "0"), 20, "nothing to be left")


if __name__ == "__main__":
    unittest.main()
