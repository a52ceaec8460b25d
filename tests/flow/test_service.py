# SPDX-License-Identifier: Apache-2.0
"""The replica as its operator meets it: admin listener, stops, a database that goes and comes back, roles."""

import os
import re
import signal
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import Record, wait_until  # noqa: E402
from saga import Load, Saga, dev, statuses, store, write_package  # noqa: E402

# Spawns on a local channel cannot be made from outside; this one is fed from Kafka and busy for as long as asked.
BUSY = """<?xml version="1.0"?>
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:q="urn:sutra:q:1.0" targetNamespace="urn:t">
<process id="Busy" isExecutable="true">
<extensionElements><q:variables><q:variable name="n" type="integer"/></q:variables></extensionElements>
<startEvent id="S"><extensionElements><q:source channel="work"/></extensionElements><messageEventDefinition/></startEvent>
<sequenceFlow id="f1" sourceRef="S" targetRef="T"/>
<scriptTask id="T" scriptFormat="lua"><script>n = 0
for i = 1, payload.rounds do n = n + i end</script></scriptTask>
<sequenceFlow id="f2" sourceRef="T" targetRef="E"/><endEvent id="E"/></process></definitions>
"""


class Service(harness.Case):
    """A migrated database, the saga's packages and a replica of `dev` on both."""

    timeout = 90

    def replica(self, config=None, own=False, **start):
        database = self.postgres(own=own)
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        return database, saga, dev(self, saga, database, config, **start)


class Admin(Service):
    def test_admin_is_closed_without_a_key(self):
        engine = self.sutra(
            'admin = { listen = "127.0.0.1:0"; };\ndeployment = { dir = "%s"; };\n' % self.folder())
        status, body = engine.get("/admin/instances")
        self.assertEqual((503, "SUTRA.ADMIN.AUTH_UNCONFIGURED"), (status, body["code"]))
        self.assertEqual(200, engine.get("/sutra/health/live", key=None)[0])
        self.assertEqual(200, engine.get("/metrics", key=None)[0])
        self.assertEqual(200, engine.get("/sutra/deployments", key=None)[0])

    def test_admin_asks_for_the_key(self):
        engine = self.sutra({"deployment.dir": self.folder()})
        for key in (None, "wrong", engine.KEY + "x", engine.KEY[:-1], ""):
            status, body = engine.get("/admin/instances", key=key)
            self.assertEqual((401, "SUTRA.ADMIN.AUTH_MISSING", "urn:bpm:diag:SUTRA.ADMIN.AUTH_MISSING"),
                             (status, body["code"], body["type"]))
        self.assertEqual(200, engine.get("/admin/instances")[0])
        self.assertEqual(404, engine.get("/admin/nothing")[0])
        self.assertEqual(400, engine.get("/admin/instances?limit=many")[0])
        self.assertNotIn(engine.KEY, engine.log_text())

    def test_health_metrics_and_pages(self):
        database, saga, engine = self.replica({"engine.shards": 3})
        ready = engine.wait_ready()
        checks = {check["name"]: check for check in ready["checks"]}
        self.assertEqual("UP", ready["status"])
        self.assertEqual(3, checks["sutra-loader"]["data"]["shards"])
        self.assertEqual(2, checks["sutra-loader"]["data"]["deployments"])
        wait_until(lambda: all(check["status"] == "UP" for check in engine.wait_ready()["checks"]), 20, "all channels")
        orders = saga.orders(25)
        saga.send_orders(orders)
        saga.wait_parked(database, 25)
        saga.send_payments(orders[:5])
        wait_until(lambda: statuses(database).get("COMPLETED") == 5, 20, "five payments")
        seen, path = [], "/admin/instances?limit=7"
        while path:
            page = engine.get(path)[1]
            self.assertLessEqual(len(page["instances"]), 7)
            seen += [entry["id"] for entry in page["instances"]]
            path = page["next"] and f"/admin/instances?limit=7&cursor={page['next']}"
        self.assertEqual(sorted(seen), [row[0] for row in database.psql(
            "select id from sutra.instance where status = 'SUSPENDED' order by 1")])
        self.assertEqual(5, len(engine.get("/admin/instances?status=COMPLETED")[1]["instances"]))
        self.assertEqual(25, len(engine.get("/admin/instances?includeTerminal=true")[1]["instances"]))
        self.assertEqual(25, engine.metric("sutra_deliveries_total", channel="orders", outcome="committed"))
        self.assertEqual(25, engine.metric("sutra_lane_parks_total"))
        self.assertEqual(5, engine.metric("sutra_lane_resumes_total"))
        self.assertEqual(3, len(re.findall(r"^sutra_lane_dispatches_total\{", engine.get("/metrics")[1], re.MULTILINE)))
        for line in engine.get("/metrics")[1].splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) .*|[a-z_]+(\{([a-z_]+="[^"]*",?)*\})? [-+0-9.eE]+(nan|inf)?)$')


class Stop(Service):
    def leftovers(self, database):
        return {what: database.count(f"select count(*) from sutra.{what}") for what in (
            "instance where claim_owner is not null", "outbox_entry where claim_owner is not null",
            "lease where holder is not null and expires_at > now()")}

    def test_sigterm_leaves_nothing_behind(self):
        database, saga, engine = self.replica({"lease.ttl": "PT60S", "engine.shards": 2})
        orders = saga.orders(300)
        saga.send_orders(orders)
        wait_until(lambda: len(statuses(database)) and statuses(database).get("SUSPENDED", 0) > 20, 20, "some load")
        self.assertGreater(database.count("select count(*) from sutra.lease where expires_at > now()"), 0)
        self.assertEqual(0, engine.terminate(30))
        self.assertEqual({0}, set(self.leftovers(database).values()), self.leftovers(database))
        self.assertEqual([], engine.events(level="error"))

    def test_an_idle_replica_stops_at_once(self):
        _, _, engine = self.replica()
        engine.send_signal(signal.SIGINT)
        self.assertEqual(0, engine.wait(8))

    def test_a_second_signal_ends_it(self):
        # A script that runs for longer than anyone wants to wait, so that the orderly stop has to.
        database = self.postgres()
        self.migrate(database)
        folder = write_package(os.path.join(self.folder(), "busy"), [{"name": "work", "transport": "kafka", "bind": "work"}],
                               {"busy.bpmn": BUSY})
        saga = Saga(None, self.folder(), create=False)
        engine = dev(self, saga, database, {"shutdown.timeout": "PT60S"}, packages=[folder])
        database.psql("begin; lock table sutra.instance in access exclusive mode; commit")
        holder = threading.Thread(target=lambda: database.psql(
            "begin; lock table sutra.instance in access exclusive mode; select pg_sleep(20); commit"), daemon=True)
        holder.start()
        wait_until(lambda: database.count("select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted "
                                          "and relation = 'sutra.instance'::regclass") == 1, 10, "the lock")
        saga.kafka.produce("work", [Record("k", '{"rounds":10}')])
        wait_until(lambda: engine.metric("sutra_deliveries_total", outcome="received") == 1, 20, "the message")
        engine.send_signal(signal.SIGTERM)
        engine.wait_log("stopping on SIGTERM")
        self.assertTrue(engine.alive())
        engine.send_signal(signal.SIGTERM)
        self.assertEqual(-signal.SIGTERM, engine.wait(5))
        database.psql("select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep%' "
                      "and pid <> pg_backend_pid()")
        holder.join(10)


class Database(Service):
    timeout = 120

    def test_it_waits_for_a_database_that_is_down_at_start(self):
        database = self.postgres(own=True)
        self.migrate(database)
        database.server.stop()
        saga = Saga(None, self.folder(), create=False)
        engine = dev(self, saga, database, ready=False)
        wait_until(lambda: engine.get("/sutra/health/ready")[0] == 503, 20, "readiness to be DOWN")
        self.assertEqual(200, engine.get("/sutra/health/live")[0])
        engine.wait_log("not ready, trying again")
        database.server.start()
        engine.wait_ready(30)
        orders = saga.orders(3)
        saga.send_orders(orders)
        saga.wait_parked(database, 3)
        self.assertEqual(0, engine.terminate())

    def test_it_stops_while_it_waits(self):
        database = self.postgres(own=True)
        database.server.stop()
        engine = dev(self, Saga(None, self.folder(), create=False), database, ready=False)
        engine.wait_log("not ready, trying again")
        engine.send_signal(signal.SIGTERM)
        self.assertEqual(0, engine.wait(20))

    def restart_under_load(self, hurt):
        database, saga, engine = self.replica(own=True, config={"engine.shards": 2})
        load = Load(saga)
        load.start()
        for _ in range(3):
            known = sum(statuses(database).values())
            wait_until(lambda: sum(statuses(database).values()) > known, 30, "it to go on")
            hurt(database)
        known = sum(statuses(database).values())
        wait_until(lambda: sum(statuses(database).values()) > known, 30, "it to go on")
        load.finish(self, database)
        wait_until(lambda: engine.get("/sutra/health/ready")[0] == 200, 20, "readiness")
        self.assertEqual(0, engine.terminate())

    def test_a_restart_under_load_loses_and_doubles_nothing(self):
        self.restart_under_load(lambda database: database.server.restart())

    def test_kill_9_of_the_server_under_load(self):
        def hurt(database):
            database.server.kill()
            database.server.start()

        self.restart_under_load(hurt)

    def test_dropped_connections_under_load(self):
        self.restart_under_load(lambda database: database.server.drop_connections())


class Roles(harness.Case):
    timeout = 60

    def refused(self, database, user):
        url = database.url.replace("//sutra@", f"//{user}@")
        engine = self.sutra({**store(database), "datasource.url": url, "deployment.dir": self.folder()}, start=False)
        engine.launch()
        code = engine.wait(20)
        self.assertNotEqual(0, code)
        return engine.log_text()

    def test_it_refuses_a_role_that_bypasses_row_security(self):
        database = self.postgres()
        self.migrate(database)
        self.assertIn("SUTRA.STARTUP.RLS_BYPASS_RISK", self.refused(database, "postgres"))
        self.assertIn("SUTRA.STARTUP.", self.refused(database, "sutra_owner"))
        database.psql(f"""create role "risk_{database.name}" login noinherit bypassrls;
            grant sutra_scan to "risk_{database.name}"; grant usage on schema sutra to "risk_{database.name}";
            grant select on sutra.schema_history to "risk_{database.name}" """)
        self.assertIn("SUTRA.STARTUP.RLS_BYPASS_RISK", self.refused(database, f"risk_{database.name}"))

    def test_it_refuses_a_database_without_the_schema(self):
        database = self.postgres()
        self.assertIn("SUTRA.STARTUP.DATABASE", self.refused(database, "sutra"))

    def test_migrate_twice_and_by_serve(self):
        database = self.postgres()
        self.migrate(database)
        self.migrate(database)
        other = self.postgres()
        engine = self.sutra({**store(other), "datasource.migrate-url": other.migrate_url, "datasource.migrate": True,
                             "deployment.dir": self.folder()})
        self.assertGreater(other.count("select count(*) from sutra.schema_history"), 0)
        self.assertEqual(0, engine.terminate())

    def test_tenants_do_not_see_each_other(self):
        database = self.postgres()
        self.migrate(database)
        saga = Saga(None, self.folder(), create=False)
        dev(self, saga, database)
        saga.send_orders(saga.orders(3))
        saga.wait_parked(database, 3)
        for tenants, count in ((",other,", 0), (",default,", 3), (",other,default,", 3), ("", 0)):
            rows = database.psql(f"begin; set local sutra.tenant = '{tenants}'; select count(*) from sutra.instance; commit",
                                 user="sutra")
            self.assertEqual([(str(count),)], rows, tenants)


if __name__ == "__main__":
    unittest.main()
