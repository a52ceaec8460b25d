# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL and Kafka die and come back under load: nothing lost, nothing doubled, order kept."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
from saga import Load, Saga, statuses, store  # noqa: E402


class Servers(harness.Case):
    timeout = 150

    def under_load(self, hurt, times=2, own_database=False, own_kafka=False):
        database, kafka = self.postgres(own=own_database), self.kafka(own=own_kafka)
        self.migrate(database)
        saga = Saga(kafka, self.folder())
        engine = self.sutra({**saga.config(), **store(database), "engine.shards": 2})
        load = Load(saga)
        load.start()
        for _ in range(times + 1):
            known = statuses(database).get("COMPLETED", 0)
            wait_until(lambda: statuses(database).get("COMPLETED", 0) > known + 20, 60, "it to go on")
            if times:
                hurt(database, kafka)
                times -= 1
        load.finish(self, database)
        wait_until(lambda: all(check["status"] == "UP" for check in engine.wait_ready()["checks"]), 30, "all to be UP")
        self.assertEqual(0, engine.terminate())

    def test_immediate_shutdown_of_postgresql(self):
        def hurt(database, _kafka):
            database.server.process.terminate(60, signal.SIGQUIT)
            database.server.start()

        self.under_load(hurt, own_database=True)

    def test_kill_9_of_kafka(self):
        self.under_load(lambda _database, kafka: kafka.restart(), own_kafka=True)

    def test_kill_9_of_both(self):
        def hurt(database, kafka):
            database.server.kill()
            kafka.kill()
            kafka.start()
            database.server.start()

        self.under_load(hurt, times=1, own_database=True, own_kafka=True)

    def test_a_network_to_the_database_that_is_cut(self):
        database, kafka = self.postgres(), self.kafka()
        self.migrate(database)
        proxy = self.proxy(f"127.0.0.1:{database.server.port}")
        saga = Saga(kafka, self.folder())
        config = {**saga.config(), **store(database), "engine.shards": 2}
        config["datasource.url"] = database.url.replace(f":{database.server.port}/", f":{proxy.port}/")
        engine = self.sutra(config)
        load = Load(saga)
        load.start()
        for _ in range(3):
            known = statuses(database).get("COMPLETED", 0)
            wait_until(lambda: statuses(database).get("COMPLETED", 0) > known + 10, 60, "it to go on")
            proxy.cut()
            wait_until(lambda: engine.get("/sutra/health/ready")[0] == 503, 20, "readiness to be DOWN")
            proxy.heal()
        load.finish(self, database)
        self.assertEqual(0, engine.terminate())


if __name__ == "__main__":
    unittest.main()
