# SPDX-License-Identifier: Apache-2.0
"""Replicas on a real Kafka and a real PostgreSQL: volume, rebalances, deaths, offsets."""

import os
import random
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import TIME_FACTOR, Record, wait_until  # noqa: E402
from saga import Load, Saga, dead_letters, statuses, store  # noqa: E402


# What nobody waits for yet stays the broker's, however often it was tried.
HELD_ONLY = {"hold.max-persisted": 0}


class Replicas(harness.Case):
    timeout = 150

    def prepare(self, partitions=6, own=False, kafka=None, **saga):
        self.database = self.postgres()
        self.migrate(self.database)
        self.broker = self.kafka(own=own, **(kafka or {}))
        self.saga = Saga(self.broker, self.folder(), partitions=partitions, **saga)
        return self.saga

    def replica(self, name="one", start=True, **more):
        config = {**self.saga.config(), **store(self.database), "engine.shards": 2, **more}
        return self.sutra(config, start=start, name=name)

    def assignments(self, engine, channel):
        """How many partitions a replica has of a channel, by the detail of its readiness."""
        for check in engine.get("/sutra/health/ready")[1]["checks"]:
            if check["name"] == "channel:default/" + channel:
                words = (check["data"]["detail"] or "").split()
                return int(words[0]) if words and words[0].isdigit() else 0
        return 0

    def wait_shared(self, one, two, partitions):
        for channel in ("orders", "payments", "items"):
            wait_until(
                lambda channel=channel: self.assignments(one, channel) + self.assignments(two, channel) == partitions
                and self.assignments(one, channel) > 0 and self.assignments(two, channel) > 0, 40, f"{channel} to be shared")


class Volume(Replicas):
    def test_thousands_of_messages(self):
        saga = self.prepare()
        engine = self.replica()
        orders, streams = saga.orders(3000), [f"s{i}" for i in range(50)]
        saga.send_orders(orders)
        saga.send_items(streams, 1, 40, final=True)
        saga.chance.shuffle(orders)
        saga.send_payments(orders)
        saga.wait_done(self.database, 3050, 100)
        saga.account(self, self.database, orders, 50, 40)
        self.assertEqual([], [event for event in engine.events(level="error")])
        self.assertEqual(0, engine.terminate())

    def test_two_replicas_share_the_work(self):
        saga = self.prepare()
        one, two = self.replica("one"), self.replica("two")
        self.wait_shared(one, two, 6)
        orders, streams = saga.orders(600), [f"s{i}" for i in range(20)]
        saga.send_payments(orders[:100])
        saga.send_orders(orders)
        saga.send_items(streams, 1, 15, final=True)
        saga.send_payments(orders[100:])
        saga.wait_done(self.database, 620)
        saga.account(self, self.database, orders, 20, 15)
        for engine in (one, two):
            self.assertGreater(engine.metric("sutra_deliveries_total", channel="orders", outcome="committed"), 0)
            self.assertEqual(0, engine.terminate())


class Large(Replicas):
    def test_twelve_megabytes_are_dead_lettered(self):
        saga = self.prepare(kafka={"properties": {"message.max.bytes": 16 << 20}})
        engine = self.replica()
        good = saga.orders(2)
        saga.send_orders(good[:1])
        self.broker.produce(saga.topics["orders"], [Record(good[1].id, '{"orderId":"' + "x" * (12 << 20) + '"}')],
                            message_max_bytes=14 << 20)
        saga.send_orders(good[1:])
        saga.wait_parked(self.database, 2)
        self.assertEqual({"SUTRA.INBOUND.PAYLOAD_TOO_LARGE": 1}, dead_letters(self.database))
        self.assertEqual(12 << 20 | 14, self.database.count("select length(payload) from sutra.dead_letter"))
        wait_until(lambda: saga.lag() == 0, 20, "the offsets")
        self.assertEqual(0, engine.terminate())


class Offsets(Replicas):
    def test_a_held_payment_holds_the_offset(self):
        saga = self.prepare(partitions=1)
        engine = self.replica(**HELD_ONLY)
        orders = saga.orders(20)
        saga.send_orders(orders[1:])
        saga.wait_parked(self.database, 19)
        saga.send_payments(orders[:1])
        saga.send_payments(orders[1:])
        wait_until(lambda: statuses(self.database).get("COMPLETED") == 19, 20, "those behind it")
        wait_until(lambda: saga.kafka.lag(saga.topics["orders"], saga.groups["orders"]) == 0, 20, "the orders' offsets")
        self.assertIn(saga.kafka.committed(saga.topics["payments"], saga.groups["payments"])[0], (None, 0))
        # Its end is no way out either; nothing is doubled when it is read again.
        self.assertEqual(0, engine.terminate())
        self.assertIn(saga.kafka.committed(saga.topics["payments"], saga.groups["payments"])[0], (None, 0))
        engine.start()
        saga.send_orders(orders[:1])
        saga.wait_done(self.database, 20)
        saga.account(self, self.database, orders)

    def test_a_topic_that_is_missing_and_then_made(self):
        saga = self.prepare(create=False)
        engine = self.replica()
        self.assertEqual(200, engine.get("/sutra/health/ready")[0])
        wait_until(lambda: [check["data"]["state"] for check in engine.wait_ready()["checks"]
                            if check["name"] == "channel:default/orders" and check["status"] == "DOWN"], 20, "the check")
        for topic in saga.topics.values():
            saga.kafka.create_topic(topic, 3)
        orders = saga.orders(30)
        saga.send_orders(orders)
        saga.send_payments(orders)
        saga.wait_done(self.database, 30)
        saga.account(self, self.database, orders)
        wait_until(lambda: all(check["status"] == "UP" for check in engine.wait_ready()["checks"]), 20, "all to be UP")
        self.assertEqual(0, engine.terminate())

    def test_a_destination_that_is_missing_and_then_made(self):
        saga = self.prepare(create=False)
        for name in ("orders", "payments", "items", "stock"):
            saga.kafka.create_topic(saga.topics[name], 2)
        engine = self.replica()
        orders = saga.orders(10)
        saga.send_orders(orders)
        saga.send_payments(orders)
        wait_until(lambda: statuses(self.database).get("COMPLETED") == 10, 30, "the steps")
        wait_until(lambda: self.database.count(
            "select count(*) from sutra.outbox_entry where attempt_count > 0 and last_diagnostic_json like "
            "'%SUTRA.OUTBOUND.%'") == 10, 60, "the failed attempts")
        saga.kafka.create_topic(saga.topics["order-replies"], 2)
        saga.wait_done(self.database, 10)
        saga.account_orders(self, orders)
        self.assertEqual(0, engine.terminate())


class Rebalance(Replicas):
    def test_one_joins_leaves_and_is_killed_under_load(self):
        saga = self.prepare()
        one = self.replica("one")
        load = Load(saga)
        load.start()
        wait_until(lambda: statuses(self.database).get("COMPLETED", 0) > 20, 30, "some orders")
        two = self.replica("two")
        self.wait_shared(one, two, 6)
        self.assertEqual(0, two.terminate())
        known = statuses(self.database)["COMPLETED"]
        wait_until(lambda: statuses(self.database)["COMPLETED"] > known + 20, 30, "one to go on alone")
        two.start()
        self.wait_shared(one, two, 6)
        two.kill()
        known = statuses(self.database)["COMPLETED"]
        wait_until(lambda: statuses(self.database)["COMPLETED"] > known + 40, 30, "one to go on alone")
        load.finish(self, self.database)
        self.assertEqual(0, one.terminate())

    def test_held_messages_go_to_the_next_owner(self):
        saga = self.prepare()
        one = self.replica("one", **HELD_ONLY)
        orders = saga.orders(30)
        saga.send_payments(orders)
        wait_until(lambda: one.metric("sutra_held_deliveries", channel="payments") == 30, 20, "all payments to be held")
        two = self.replica("two", **HELD_ONLY)
        self.wait_shared(one, two, 6)
        wait_until(lambda: one.metric("sutra_held_deliveries", channel="payments")
                   + two.metric("sutra_held_deliveries", channel="payments") == 30
                   and two.metric("sutra_held_deliveries", channel="payments") > 0, 20, "both to hold some")
        one.kill()
        saga.send_orders(orders)
        saga.wait_done(self.database, 30)
        saga.account(self, self.database, orders)
        self.assertEqual(0, two.terminate())

    def test_a_frozen_replica_overwrites_nothing(self):
        saga = self.prepare()
        one, two = self.replica("one"), self.replica("two")
        self.wait_shared(one, two, 6)
        load = Load(saga)
        load.start()
        wait_until(lambda: statuses(self.database).get("COMPLETED", 0) > 20, 30, "some orders")
        one.freeze()
        known = statuses(self.database)["COMPLETED"]
        wait_until(lambda: statuses(self.database)["COMPLETED"] > known + 60, 60, "two to go on with what one had")
        one.thaw()
        load.finish(self, self.database)
        for engine in (one, two):
            self.assertEqual(0, engine.terminate())


class Broker(Replicas):
    def test_kill_9_of_the_broker_with_two_replicas(self):
        saga = self.prepare(own=True)
        one, two = self.replica("one"), self.replica("two")
        self.wait_shared(one, two, 6)
        load = Load(saga)
        load.start()
        for _ in range(2):
            known = statuses(self.database).get("COMPLETED", 0)
            wait_until(lambda: statuses(self.database).get("COMPLETED", 0) > known + 20, 60, "it to go on")
            self.broker.restart()
        load.finish(self, self.database)
        for engine in (one, two):
            self.assertEqual(0, engine.terminate())


class Chaos(Replicas):
    timeout = 180

    def test_thirty_seconds(self):
        seed = int(os.environ.get("SUTRA_CHAOS_SEED") or random.SystemRandom().randrange(1 << 30))
        print(f"chaos: SUTRA_CHAOS_SEED={seed}", file=sys.stderr)
        chance = random.Random(seed)
        saga = self.prepare(seed=seed)
        engines = [self.replica("one"), self.replica("two")]
        load = Load(saga, streams=12)
        load.start()
        deaths, end = 0, time.monotonic() + 30 * TIME_FACTOR
        while time.monotonic() < end:
            # The moment is what is random here, so this is no wait for anything.
            self.assertFalse(load.over.wait(chance.uniform(0.2, 3)))
            victim = chance.choice(engines)
            deed = chance.choice(("kill", "kill", "terminate", "freeze", "drop"))
            print(f"chaos: {deed} {victim.process.name}", file=sys.stderr)
            if deed == "freeze":
                victim.freeze()
                load.over.wait(chance.uniform(0.5, 4))
                victim.thaw()
            elif deed == "drop":
                self.database.server.drop_connections()
            else:
                deaths += deed == "kill"
                victim.restart(how=deed, ready=False)
        self.assertGreater(deaths, 0)
        load.finish(self, self.database, 90)
        for engine in engines:
            self.assertEqual(0, engine.terminate())


if __name__ == "__main__":
    unittest.main()
