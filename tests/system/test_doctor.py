# SPDX-License-Identifier: Apache-2.0
"""`sutra doctor` against real servers: a deployment in order is found to be so, and each planted fault is found."""

import json
import os
import sys
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import free_port, wait_until  # noqa: E402
from saga import order_saga, write_package  # noqa: E402

KEY = "test-admin-key"


class Setup:
    """A deployment: the order saga with orders from Kafka and payments from RabbitMQ."""

    def __init__(self, case, database, kafka=None, rabbitmq=None):
        self.case = case
        self.database = database
        self.folder = case.folder("doctor")
        self.mark = uuid.uuid4().hex[:8]
        self.kafka, self.rabbitmq = kafka, rabbitmq
        self.names = {name: f"{name}-{self.mark}" for name in ("orders", "payments", "stock", "order-replies")}
        self.properties = {}
        self.channels = [
            {"name": "orders", "transport": "kafka", "bind": self.names["orders"]},
            {"name": "payments", "transport": "amqp", "bind": self.names["payments"]},
            {"name": "stock", "direction": "outbound", "transport": "amqp", "bind": f"{self.names['stock']}/all"},
            {"name": "order-replies", "direction": "outbound", "transport": "kafka", "bind": self.names["order-replies"]},
        ]
        self.settings = {
            "admin.listen": f"127.0.0.1:{free_port()}", "admin.auth.key-ref": "env:DOCTOR_KEY",
            "deployment.dir": os.path.join(self.folder, "packages"), "secrets.dir": self.folder,
        }
        if database:
            self.settings["datasource.url"] = database.url
        self.amqp = {"name": "amqp", "transport": "amqp", "heartbeat": "PT2S"}
        if rabbitmq:
            self.amqp.update({"url": rabbitmq.url, "management-url": rabbitmq.management_url})
        self.write()

    def write(self):
        write_package(os.path.join(self.folder, "packages", "saga"), self.channels, {"order.bpmn": order_saga()}, "saga")

    def local(self):
        """Without brokers: for what is wrong elsewhere."""
        for channel in self.channels:
            channel.update(transport="local", bind=channel["name"])
        for name in ("stock", "order-replies"):
            self.channels.append({"name": name + "-in", "transport": "local", "bind": name + "-in"})
            next(channel for channel in self.channels if channel["name"] == name)["bind"] = name + "-in"
        self.write()
        return self

    def provision(self, kafka=True, queue=True, exchange=True, arguments=None):
        if kafka:
            self.kafka.create_topic(self.names["orders"], 2)
            self.kafka.create_topic(self.names["order-replies"], 1)
        with self.rabbitmq.connect() as amqp:
            if queue:
                amqp.declare(self.names["payments"], arguments=arguments or {"x-queue-type": "quorum"})
            if exchange:
                amqp.exchange(self.names["stock"])
        return self

    def run(self, *arguments, settings=None):
        config = dict(self.settings)
        connections = [self.amqp] if "url" in self.amqp else []
        if self.kafka:
            properties = {"bootstrap.servers": self.kafka.bootstrap, **self.properties}
            connections.append({"name": "kafka", "transport": "kafka",
                                "properties": [f"{name}={value}" for name, value in properties.items()]})
        if connections:
            config["connections"] = connections
        config.update(settings or {})
        path = os.path.join(self.folder, "sutra.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(harness.libconfig({name: value for name, value in config.items() if value is not None}))
        return harness.sutra("doctor", "--config", path, *arguments, check=False, env={"DOCTOR_KEY": KEY})

    def report(self, settings=None):
        """(exit code, findings but facts, all of it), from the JSON."""
        done = self.run("--json", settings=settings)
        self.case.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        report = json.loads(done.stdout)
        found = [entry for entry in report["findings"] if entry["severity"] != "info"]
        self.case.assertEqual(report["errors"], sum(entry["severity"] == "error" for entry in found))
        self.case.assertEqual(1 if report["errors"] else 0, done.returncode)
        return done.returncode, found, report["findings"]


class Doctor(harness.Case):
    timeout = 120

    def setup(self, migrate=True):
        """Everything in order. The servers serve all tests of this file."""
        database = self.durable().create_database(f"d{uuid.uuid4().hex[:10]}")
        if migrate:
            self.migrate(database)
        return Setup(self, database, self.kafka(), self.managed_rabbitmq())

    def durable(self):
        return self.shared("postgresql", "durable", lambda: harness.Postgres(mode="durable"))

    def managed_rabbitmq(self):
        return self.shared("rabbitmq", "managed", lambda: harness.RabbitMQ(management=True))

    def shared(self, service, name, make):
        def start():
            return harness._Shared.get(name, lambda: make().start())

        try:
            return start()
        except harness.Unavailable as missing:
            if service in os.environ.get("SUTRA_TEST_REQUIRE", "").split(","):
                self.fail(f"{service} is required: {missing}")
            return self.skipTest(f"{service}: {missing}")

    def assert_found(self, found, check, severity="error", code=None, object_=None, what="", remedy=""):
        entries = [entry for entry in found if entry["check"] == check and (object_ is None or entry["object"] == object_)]
        self.assertEqual(1, len(entries), f"{check}: {found}")
        entry = entries[0]
        self.assertEqual(severity, entry["severity"], entry)
        if code:
            self.assertEqual("SUTRA." + code, entry["code"])
        self.assertIn(what, entry["what"])
        self.assertIn(remedy, entry["remedy"])

    def assert_only(self, found, *checks):
        self.assertEqual(sorted(checks), sorted(entry["check"] for entry in found), found)

    def test_a_deployment_in_order(self):
        setup = self.setup().provision()
        code, found, facts = setup.report()
        self.assertEqual((0, []), (code, found))
        what = {(entry["area"], entry["check"]): entry["what"] for entry in facts}
        self.assertRegex(what["connection amqp", "broker"], r"^RabbitMQ 3\.\d+")
        self.assertEqual("quorum queue", what["connection amqp", "queue"])
        self.assertRegex(what["connection kafka", "broker"], r"^1 brokers")
        self.assertRegex(what["database", "server"], r"^PostgreSQL \d+.* as sutra of database")
        self.assertIn("saga 1.0.0 of tenant default", what["packages", "package"])
        done = setup.run()
        self.assertEqual(0, done.returncode)
        self.assertIn("nothing wrong was found", done.stdout)
        self.assertEqual("", done.stderr)
        # Nothing was made, and nobody joined the group.
        self.assertEqual({0: None, 1: None},
                         setup.kafka.committed(setup.names["orders"], "sutra.default.orders"))

    def test_missing_topics_queues_and_exchanges(self):
        setup = self.setup()
        code, found, _ = setup.report()
        self.assertEqual(1, code)
        self.assert_only(found, "topic-missing", "topic-missing", "queue-missing", "exchange-missing")
        names = setup.names
        self.assert_found(found, "topic-missing", code="INBOUND.SOURCE_MISSING", object_=f"topic {names['orders']}",
                          remedy=f"--topic {names['orders']}")
        self.assert_found(found, "topic-missing", code="OUTBOUND.UNROUTABLE", object_=f"topic {names['order-replies']}")
        self.assert_found(found, "queue-missing", code="INBOUND.SOURCE_MISSING", object_=f"queue {names['payments']}",
                          what="default/payments")
        self.assert_found(found, "exchange-missing", code="OUTBOUND.UNROUTABLE", object_=f"exchange {names['stock']}",
                          remedy="create it")
        # They are still missing.
        self.assertEqual(1, setup.report()[0])

    def test_queues(self):
        setup = self.setup().provision(queue=False)
        queue = setup.names["payments"]
        unsafe = "unsafe-" + queue
        with setup.rabbitmq.connect() as amqp:
            amqp.declare(unsafe, arguments={"x-queue-type": "quorum", "x-delivery-limit": 5})
        cases = (
            # Of a queue so new the API does not tell yet which policies apply.
            ({"x-queue-type": "quorum", "x-delivery-limit": 5}, "queue-unsafe", "warning", "INBOUND.AMQP.QUEUE_UNSAFE"),
            ({"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "amq.fanout"}, None, None, None),
            ({"x-message-ttl": 1000}, "queue-drops", "warning", "INBOUND.SOURCE_SUSPICIOUS"),
        )
        for arguments, check, severity, code in cases:
            with self.subTest(arguments=arguments), setup.rabbitmq.connect() as amqp:
                amqp.declare(queue, arguments=arguments)
                exit_code, found, _ = setup.report()
                amqp.delete(queue)
                self.assertEqual(1 if severity == "error" else 0, exit_code)
                self.assert_only(found, *([check] if check else []))
                if check:
                    self.assert_found(found, check, severity, code, f"queue {queue}")
        with setup.rabbitmq.connect() as amqp:
            amqp.declare(queue, durable=False)
            self.assert_found(setup.report()[1], "queue-transient", "warning", remedy="durable")
        # Without the management API the broker tells none of it.
        api = setup.amqp.pop("management-url")
        code, found, facts = setup.report()
        self.assertEqual((0, []), (code, found))
        self.assertTrue([entry for entry in facts if entry["check"] == "queue-unknown"])
        setup.amqp["management-url"] = f"http://127.0.0.1:{free_port()}"
        self.assert_found(setup.report()[1], "management", "warning", remedy="management-url")
        setup.amqp["management-url"] = api
        setup.names["payments"] = setup.channels[1]["bind"] = unsafe
        setup.write()
        self.wait_unsafe(setup, "more than 5 times is thrown away: the queue has no dead-letter exchange")

    def wait_unsafe(self, setup, what):
        """Until the broker has told which policies apply to the queue."""
        def unsafe():
            code, found, _ = setup.report()
            return found if code == 1 else None

        found = wait_until(unsafe, 30, "the queue to be found unsafe", interval=0.3)
        self.assert_only(found, "queue-unsafe")
        self.assert_found(found, "queue-unsafe", "error", "INBOUND.AMQP.QUEUE_UNSAFE", f"queue {setup.names['payments']}",
                          what=what, remedy="x-dead-letter-exchange")

    def test_the_default_limit_of_rabbitmq_4(self):
        try:
            rabbitmq = self.use(harness.RabbitMQ(era="4.0", management=True)).start()
        except harness.Unavailable as missing:
            self.skipTest(str(missing))
        setup = self.setup()
        setup.rabbitmq = rabbitmq
        setup.amqp.update({"url": rabbitmq.url, "management-url": rabbitmq.management_url})
        setup.provision()
        self.wait_unsafe(setup, "more than 20 times is thrown away")
        # A user who may do no more than the engine needs, and whom the management API refuses.
        rabbitmq.control("add_user", "engine", "secret")
        rabbitmq.control("set_permissions", "engine", "^$", ".*", ".*")
        setup.amqp["url"] = rabbitmq.url.replace("guest:guest", "engine:secret")
        code, found, _ = setup.report()
        self.assertEqual(0, code)
        self.assert_only(found, "management", "queue-unknown")
        self.assert_found(found, "queue-unknown", "warning", "INBOUND.AMQP.QUEUE_UNSAFE", remedy="management-url")

    def test_topics_and_properties(self):
        setup = self.setup().provision(kafka=False)
        kafka = setup.kafka
        kafka.create_topic(setup.names["order-replies"], 1)
        kafka.create_topic(setup.names["orders"], 1, cleanup_policy="compact,delete", retention_ms=600000,
                           max_message_bytes=20 << 20)
        setup.properties = {"auto.offset.reset": "latest", "session.timeout.ms": 100, "heartbeat.interval.ms": 50}
        code, found, _ = setup.report()
        self.assertEqual(1, code)
        self.assert_only(found, "topic-compacted", "retention-short", "payload-cap", "offset-reset", "session-refused",
                         "heartbeat-slow")
        self.assert_found(found, "topic-compacted", "warning", "INBOUND.SOURCE_SUSPICIOUS", remedy="cleanup.policy=delete")
        self.assert_found(found, "retention-short", "error", remedy="retention.ms")
        self.assert_found(found, "payload-cap", "warning", what="20971520")
        self.assert_found(found, "offset-reset", "warning", "CONFIG.CONNECTION.SUSPICIOUS")
        self.assert_found(found, "session-refused", "error", what="100 ms")
        setup.properties = {"enable.auto.commit": "true"}
        self.assert_found(setup.report()[1], "connection-invalid", "error", "CONFIG.PROPERTY.INVALID",
                          what="enable.auto.commit")

    def test_brokers_that_are_away(self):
        setup = self.setup().provision()
        setup.properties = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
        setup.amqp["url"] = f"amqp://guest:guest@127.0.0.1:{free_port()}/"
        code, found, _ = setup.report()
        self.assertEqual(1, code)
        self.assert_only(found, "broker-unreachable", "broker-unreachable")
        for entry in found:
            self.assertEqual("SUTRA.STARTUP.BROKER", entry["code"])
            self.assertNotIn("guest", entry["what"])
        setup.properties = {}
        setup.amqp["url"] = setup.rabbitmq.url.replace("guest:guest", "guest:wrong")
        entry = next(entry for entry in setup.report()[1] if entry["area"] == "connection amqp")
        self.assertIn("refuses the login", entry["what"])

    def database(self, settings=None, migrate=True, alter=None):
        """The findings about a database, with nothing else to find."""
        database = self.durable().create_database(f"d{uuid.uuid4().hex[:10]}")
        if migrate:
            self.migrate(database)
        if alter:
            database.psql(alter)
        setup = Setup(self, database).local()
        code, found, _ = setup.report(settings(database) if settings else None)
        self.assertTrue(all(entry["area"] == "database" for entry in found), found)
        return code, found

    def test_databases(self):
        code, found = self.database(migrate=False)
        self.assertEqual(1, code)
        self.assert_found(found, "schema-missing", code="STARTUP.DATABASE", remedy="sutra migrate")
        code, found = self.database(alter="insert into sutra.schema_history values (99, 'later', 'x')")
        self.assert_only(found, "schema-version")
        code, found = self.database(lambda database: {"datasource.url": database.migrate_url})
        self.assertEqual(1, code)
        self.assert_found(found, "owner", code="STARTUP.RLS_BYPASS_RISK", remedy="datasource.migrate-url")
        code, found = self.database(
            lambda database: {"datasource.url": database.url.replace("sutra@", "postgres@")})
        self.assert_found(found, "superuser", code="STARTUP.RLS_BYPASS_RISK")
        code, found = self.database(alter="revoke select, insert on sutra.wait from sutra")
        self.assert_found(found, "grants-missing", what="wait (insert), wait (select)", remedy="sutra migrate")
        code, found = self.database(lambda _: {"datasource.pool-size": 200})
        self.assert_only(found, "connections")
        code, found = self.database(lambda _: {"datasource.url": f"postgresql://sutra@127.0.0.1:{free_port()}/x"})
        self.assert_only(found, "unreachable")
        self.assertEqual(1, code)

    def test_database_settings(self):
        code, found = self.database(alter="""
            do $$ begin execute format('alter role sutra in database %I reset enable_seqscan', current_database());
            execute format('alter role sutra in database %I set synchronous_commit = off', current_database()); end $$""")
        self.assertEqual(1, code)
        self.assert_only(found, "not-durable", "role-settings")
        self.assert_found(found, "not-durable", "error", "STARTUP.DATABASE_SUSPICIOUS", "synchronous_commit")
        self.assert_found(found, "role-settings", "warning", what="enable_seqscan = off", remedy="sutra migrate")
        code, found = self.database(lambda _: {"datasource.url": None})
        self.assertEqual(0, code)
        self.assert_found(found, "memory-store", "warning", "STARTUP.MEMORY_STORE")

    def test_inbox_projection(self):
        database = self.durable().create_database(f"d{uuid.uuid4().hex[:10]}")
        self.migrate(database)
        database.psql("insert into sutra.inbox (key, created_at, tenant) select gen_random_uuid(), "
                      "now() - interval '1 hour', 'default' from generate_series(1, 2000); analyze sutra.inbox")
        _, found, facts = Setup(self, database).local().report()
        self.assertEqual([], found)
        fact = next(entry for entry in facts if entry["check"] == "inbox")
        self.assertRegex(fact["what"], r"^2000 event ids an hour; .* 3\.36e\+05 rows")

    def test_packages_and_engine(self):
        setup = Setup(self, None).local()
        setup.settings.update({"admin.auth.key-ref": None, "tenants": [{"name": "default", "max-concurrent-instances": 5}], "secrets.dir": setup.folder + "/none"})
        write_package(os.path.join(setup.folder, "packages", "saga-2"), setup.channels, {"order.bpmn": order_saga()},
                      "saga", "2.0.0")
        write_package(os.path.join(setup.folder, "packages", "broken"),
                      [{"name": "x", "transport": "pigeon", "bind": "x"}], {}, "broken")
        setup.channels[1].update(transport="kafka", connection="elsewhere", bind="payments")
        setup.write()
        code, found, _ = setup.report()
        self.assertEqual(1, code)
        self.assert_only(found, "settings", "admin-closed", "secrets", "package-broken", "package-conflict", "memory-store",
                         "connection-missing")
        self.assert_found(found, "package-broken", code="DEPLOY.FAILED", remedy="sutra lint")
        self.assert_found(found, "package-conflict", code="DEPLOY.CONFLICT", what="1.0.0 and 2.0.0")
        self.assert_found(found, "connection-missing", code="CONFIG.CONNECTION.MISSING", object_="channel default/payments",
                          what="'elsewhere'")
        self.assert_found(found, "settings", code="STARTUP.SETTINGS", what="tenant 'default'")
        self.assert_found(found, "admin-closed", "warning", "ADMIN.AUTH_UNCONFIGURED")
        done = setup.run()
        self.assertRegex(done.stdout, r"error +channel default/payments: .*\[SUTRA\.CONFIG\.CONNECTION\.MISSING\]\n +mend: add")
        self.assertRegex(done.stdout, r"\n4 errors, 3 warnings\n$")
        self.assertEqual(2, setup.run(settings={"no.such.key": "1"}).returncode)
        self.assertEqual(2, setup.run("--nonsense").returncode)


if __name__ == "__main__":
    unittest.main()
