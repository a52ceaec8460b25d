# SPDX-License-Identifier: Apache-2.0
"""What cannot be processed is dead-lettered once, with a code of its own, and the consumer goes on."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import Record, wait_until  # noqa: E402
from saga import Saga, dead_letters, dev, statuses, write_package  # noqa: E402

# A start on each channel that takes messages of type "order", or of none where the type does not matter.
TAKE = """<process id="Take-{name}" isExecutable="true">
<startEvent id="Start-{name}"><extensionElements><q:source channel="{name}" {more}/></extensionElements>
<messageEventDefinition/></startEvent>
<sequenceFlow id="f-{name}" sourceRef="Start-{name}" targetRef="End-{name}"/><endEvent id="End-{name}"/></process>
"""
CHANNELS = ("json", "msgpack", "text", "typed")


def package(folder):
    processes = "".join(
        TAKE.format(name=name, more='messageTypeValue="order"' if name == "typed" else "") for name in CHANNELS
    )
    return write_package(
        folder,
        [{"name": name, "transport": "kafka", "bind": name, "codec": "json" if name == "typed" else name,
          "dead-letter": "dead", "idempotency-key-header": "x-id", "payload-cap-bytes": 100000} for name in CHANNELS]
        + [{"name": "dead", "transport": "kafka", "bind": "dead", "direction": "outbound", "codec": "bytes"}],
        {"take.bpmn": '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:q="urn:sutra:q:1.0" '
                      'targetNamespace="urn:t">' + processes + "</definitions>"},
    )


JSON, MSGPACK, LIMIT = "PARSE.JSON.PARSE_ERROR", "PARSE.MSGPACK.PARSE_ERROR", "PARSE.LIMIT"
UTF8 = b'{"a":"\xff\xfe"}'
POISON = [
    # name, channel, value, code
    ("random bytes", "json", b"\x93\x17\x00\xfe\xde\xad\xbe\xef\x80", JSON),
    ("random bytes, msgpack", "msgpack", b"\xc1\x17\x00\xfe\xde\xad\xbe\xef\x80", MSGPACK),
    ("wrong UTF-8 in JSON", "json", UTF8, JSON),
    ("wrong UTF-8 in msgpack", "msgpack", b"\xa2\xff\xfe", MSGPACK),
    ("wrong UTF-8 in text", "text", b"\xc3\x28", "PARSE.TEXT.PARSE_ERROR"),
    # The broker in `sutra dev` keeps 5 MB of a partition; tests/system sends 12 MB.
    ("a payload over the channel's cap", "json", b'"' + b"x" * 200000 + b'"', "INBOUND.PAYLOAD_TOO_LARGE"),
    ("nesting 10 000", "json", b"[" * 10000 + b"]" * 10000, LIMIT),
    ("nesting 10 000, msgpack", "msgpack", b"\x91" * 10000 + b"\xc0", LIMIT),
    ("an array that claims 2^32-1 elements", "msgpack", b"\xdd\xff\xff\xff\xff", MSGPACK),
    ("a map that claims 2^32-1 pairs", "msgpack", b"\xdf\xff\xff\xff\xff\xa1a", MSGPACK),
    ("an integer of 30 digits", "json", b"123456789012345678901234567890", LIMIT),
    ("duplicate keys", "json", b'{"a":1,"b":2,"a":3}', "PARSE.DUPLICATE_KEY"),
    ("duplicate keys, msgpack", "msgpack", b"\x82\xa1a\x01\xa1a\x02", "PARSE.DUPLICATE_KEY"),
    ("an empty body", "json", b"", JSON),
    ("an empty body, msgpack", "msgpack", b"", MSGPACK),
    ("two values", "json", b"1 2", JSON),
    ("a type that nobody takes", "typed", b"{}", "INBOUND.NO_START_EVENT_FOR_MESSAGE_TYPE"),
    ("257 headers", "json", b"{}", "INBOUND.HEADER_LIMIT"),
]


class Poison(harness.Case):
    timeout = 120

    def replica(self):
        database = self.postgres()
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        engine = dev(self, saga, database, packages=[package(os.path.join(self.folder(), "intake"))])
        return database, saga, engine

    def test_each_is_dead_lettered_once_and_the_consumer_goes_on(self):
        database, saga, engine = self.replica()
        for name, channel, value, _ in POISON:
            headers = [("case", name)]
            if name.startswith("257"):
                headers += [(f"h{i}", "v") for i in range(256)]
            if channel == "typed":
                headers.append(("message-type", "invoice"))
            # Every one with the same record key as the good message behind it, so that it must be passed.
            saga.kafka.produce(channel, [Record("k", value, headers)])
            good = {"json": b'{"a":1}', "typed": b"{}", "msgpack": b"\x81\xa1a\x01", "text": b"fine"}[channel]
            saga.kafka.produce(channel, [Record("k", good, [("message-type", "order")])])
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == len(POISON), 60, "the good messages")
        wait_until(lambda: database.count("select count(*) from sutra.outbox_entry") == 0, 20, "an empty outbox")
        found = dead_letters(database)
        expected = {}
        for _, _, _, code in POISON:
            expected["SUTRA." + code] = expected.get("SUTRA." + code, 0) + 1
        self.assertEqual(expected, found)
        # The payload is kept as it came, and each went to the dead-letter channel too, once.
        kept = {bytes.fromhex(row[0][1:]) for row in database.psql(
            "select 'x' || encode(payload, 'hex') from sutra.dead_letter where length(payload) < 1000")}
        self.assertIn(UTF8, kept)
        dead = saga.kafka.consume("dead", timeout=60)
        self.assertEqual(len(POISON), len({record.header("sutra-outbox-key") for record in dead}))
        self.assertEqual(sorted(name for name, _, _, _ in POISON if not name.startswith("257")),
                         sorted(record.header("case") for record in dead if record.header("h0") is None))
        for channel in CHANNELS:
            wait_until(lambda: saga.kafka.lag(channel, "sutra.default." + channel) == 0, 20, f"{channel} to be committed")
        self.assertEqual(0, engine.metric("sutra_held_deliveries"))
        self.assertTrue(engine.alive())

    def test_what_is_odd_but_right_is_taken(self):
        database, saga, _ = self.replica()
        odd = [
            ("json", Record("a", "{}", [("nothing", None)])),
            ("json", Record("b", "{}", [("x-id", None)])),
            ("json", Record(None, "1", [])),
            ("json", Record("c", None, [])),
            ("json", Record(b"\xff\x00", '"x"', [("bin", b"\xfe\x00")])),
            ("json", Record("d", "9223372036854775807", [])),
            ("json", Record("e", "[" * 100 + "]" * 100, [("", "header without a name")])),
            ("msgpack", Record("f", b"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", [])),
            ("text", Record("g", "", [])),
        ]
        for channel, record in odd:
            saga.kafka.produce(channel, [record])
        wait_until(lambda: sum(statuses(database).values()) + sum(dead_letters(database).values()) == len(odd), 20, "all")
        self.assertEqual({}, dead_letters(database))
        self.assertEqual({"COMPLETED": len(odd)}, statuses(database))

    def test_event_ids_that_no_text_column_takes(self):
        database, saga, _ = self.replica()
        ids = [b"\x00", b"\xff\xfe", b"x" * 5000, "ü".encode(), b"a\x00b"]
        records = [Record("k", "{}", [("x-id", value)]) for value in ids]
        saga.kafka.produce("json", records + records)
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == len(ids), 20, "one effect each")
        wait_until(lambda: saga.kafka.lag("json", "sutra.default.json") == 0, 20, "the offsets")
        self.assertEqual({"COMPLETED": len(ids)}, statuses(database))
        saga.kafka.produce("json", [Record("k", "broken", [("x-id", value)]) for value in ids])
        wait_until(lambda: dead_letters(database).get("SUTRA." + JSON) == len(ids), 20, "their dead letters")


if __name__ == "__main__":
    unittest.main()
