# SPDX-License-Identifier: Apache-2.0
"""The harness itself: what every other test of this ring builds on. Basic things first."""

import os
import signal
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import Process, Record, ServiceError, wait_until  # noqa: E402


class Support(harness.Case):
    timeout = 30

    def test_libconfig_documents(self):
        text = harness.libconfig({
            "datasource.url": "x", "datasource.pool-size": 4, "engine": {"shards": 2},
            "names": ["a", 'b"\\'], "list": [{"name": "k", "big": 1 << 40, "on": True}],
        })
        self.assertEqual(
            'datasource = { url = "x"; pool-size = 4; };\n'
            "engine = { shards = 2; };\n"
            'names = [ "a", "b\\"\\\\" ];\n'
            'list = ( { name = "k"; big = 1099511627776L; on = true; } );\n',
            text,
        )

    def test_process_keeps_log_and_exit_code(self):
        process = Process("sh", os.path.join(self.folder(), "log"))
        process.start(["sh", "-c", "echo one; exit 3"])
        self.assertEqual(3, process.wait(10))
        process.start(["sh", "-c", "echo two; exec sleep 60"])
        wait_until(lambda: "two" in process.log_text(), 10, "the line")
        self.assertNotIn("one", process.log_text())
        self.assertIn("one", process.log_text(whole=True))
        self.assertEqual(-signal.SIGTERM, process.terminate(10))

    def test_process_that_ends_early_is_told_with_its_log(self):
        process = Process("sh", os.path.join(self.folder(), "log"))
        process.start(["sh", "-c", "echo cannot go on; exit 1"])
        with self.assertRaisesRegex(ServiceError, "cannot go on"):
            wait_until(lambda: process.must_live() and False, 10, "nothing")

    def test_wait_until_has_a_deadline(self):
        with self.assertRaisesRegex(ServiceError, "for the impossible; last seen: 0"):
            wait_until(lambda: 0, 0.1, "the impossible")

    def test_proxy_cuts_and_heals(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        proxy = self.proxy("127.0.0.1:%d" % listener.getsockname()[1])

        def connect():
            client = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
            self.addCleanup(client.close)
            server, _ = listener.accept()
            self.addCleanup(server.close)
            return client, server

        client, server = connect()
        client.sendall(b"there")
        self.assertEqual(b"there", server.recv(100))
        proxy.cut()
        self.assertEqual(b"", client.recv(100))
        refused = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
        self.addCleanup(refused.close)
        self.assertEqual(b"", refused.recv(100))
        proxy.heal()
        client, server = connect()
        server.sendall(b"back")
        self.assertEqual(b"back", client.recv(100))


class PostgreSQL(harness.Case):
    def test_roles_and_rows(self):
        database = self.postgres()
        rows = database.psql("select rolname, rolsuper, rolcreaterole from pg_roles where rolname ~ '^sutra' order by 1")
        self.assertEqual([("sutra", "f", "f"), ("sutra_owner", "f", "t")], rows)
        self.assertEqual("f", database.value("select rolinherit from pg_roles where rolname = 'sutra'"))
        self.assertEqual("sutra", database.value("select current_user", user="sutra"))
        self.assertEqual([("a\nb", None), ("", "2")], database.psql("select E'a\\nb', null; select '', 2"))
        with self.assertRaisesRegex(ServiceError, "permission denied"):
            database.psql("create schema sutra", user="sutra")
        database.psql("create schema sutra", user="sutra_owner")

    def test_databases_are_apart(self):
        one, two = self.postgres(), self.postgres()
        self.assertIs(one.server, two.server)
        one.psql("create table only_here (x int)")
        self.assertEqual(0, two.count("select count(*) from pg_tables where tablename = 'only_here'"))

    def test_kill_9_keeps_committed_rows(self):
        for mode in ("fast", "durable"):
            with self.subTest(mode=mode):
                database = self.postgres(mode=mode)
                self.assertEqual({"fast": "off", "durable": "on"}[mode], database.value("show fsync"))
                database.psql("create table kept (x int); insert into kept select generate_series(1, 1000)")
                database.server.kill()
                with self.assertRaises(ServiceError):
                    database.psql("select 1")
                database.server.start()
                self.assertEqual(1000, database.count("select count(*) from kept"))

    def test_clean_restart_and_settings(self):
        database = self.postgres(settings={"work_mem": "'7MB'"})
        database.psql("create table kept (x int)")
        database.server.restart()
        self.assertEqual("7MB", database.value("show work_mem"))
        self.assertEqual(0, database.count("select count(*) from kept"))


class Kafka(harness.Case):
    def test_records_survive_any_bytes(self):
        kafka = self.kafka()
        topic = kafka.topic("bytes", partitions=2)
        sent = [
            Record("k", "text", [("a", "1"), ("a", "2"), ("none", None), ("empty", "")]),
            Record(b"\xff\x00", b"\x80\t\n", [("bin", b"\xfe")]),
            Record(None, None),
            Record("", ""),
        ]
        self.assertEqual(4, kafka.produce(topic, sent, partition=1))
        got = kafka.consume(topic, count=4)
        self.assertEqual([(r.key, r.value, r.headers) for r in sent], [(r.key, r.value, r.headers) for r in got])
        self.assertEqual([1, 1, 1, 1], [r.partition for r in got])
        self.assertEqual(4, kafka.count(topic))
        self.assertEqual([], kafka.consume(kafka.topic("empty")))

    def test_kcat_and_kafkatool_agree(self):
        kafka = self.kafka()
        topic = kafka.topic("kcat")
        kafka.kcat_produce(topic, [("k1", "v1"), ("k2", '{"x":1}')], headers=[("ce_id", "7")])
        for got in (kafka.kcat_consume(topic), kafka.consume(topic)):
            self.assertEqual([("k1", "v1"), ("k2", '{"x":1}')], [(r.key, r.value) for r in got])
            self.assertEqual("7", got[0].header("ce_id"))
        self.assertEqual({"x": 1}, got[1].json())

    def test_lag_counts_from_the_committed_offset(self):
        kafka = self.kafka()
        topic = kafka.topic("lag")
        kafka.produce(topic, [Record("k", str(i)) for i in range(10)])
        self.assertEqual({0: None}, kafka.committed(topic, "g-" + topic))
        self.assertEqual(10, kafka.lag(topic, "g-" + topic))
        harness.run(
            ["kcat", "-b", kafka.bootstrap, "-X", "auto.offset.reset=earliest", "-c", "4", "-G", "g-" + topic, topic]
        )
        self.assertEqual({0: 4}, kafka.committed(topic, "g-" + topic))
        self.assertEqual(6, kafka.lag(topic, "g-" + topic))

    def test_a_deleted_topic_is_missing(self):
        kafka = self.kafka()
        topic = kafka.topic("gone")
        kafka.delete_topic(topic)
        with self.assertRaisesRegex(ServiceError, "Unknown topic"):
            kafka.tool("offsets", topic, timeout=2)

    def test_large_records_when_the_broker_allows(self):
        kafka = self.kafka(properties={"message.max.bytes": 16 << 20})
        topic = kafka.topic("large")
        kafka.produce(topic, [Record("k", "x" * (12 << 20))], message_max_bytes=13 << 20)
        self.assertEqual(12 << 20, len(kafka.consume(topic, count=1)[0].value))

    def test_kill_9_keeps_records_and_offsets(self):
        kafka = self.kafka(own=True)
        topic = kafka.topic("kept", partitions=3)
        self.assertEqual(20000, kafka.produce_bench(topic, 20000, size=100, keys=50)["delivered"])
        kafka.produce(topic, [Record("last", "one", [("h", "v")])])
        before = kafka.consume(topic)
        harness.run(["kcat", "-b", kafka.bootstrap, "-X", "auto.offset.reset=earliest", "-c", "100", "-G", "g", topic])
        lag = kafka.lag(topic, "g")
        kafka.kill()
        kafka.start()
        after = kafka.consume(topic)
        self.assertEqual(20001, len(after))
        self.assertEqual(
            sorted((r.partition, r.offset, r.key, r.value) for r in before),
            sorted((r.partition, r.offset, r.key, r.value) for r in after),
        )
        self.assertEqual(20001 - 100, lag)
        self.assertEqual(lag, kafka.lag(topic, "g"))
        self.assertEqual("v", next(r for r in after if r.key == "last").header("h"))


if __name__ == "__main__":
    unittest.main()
