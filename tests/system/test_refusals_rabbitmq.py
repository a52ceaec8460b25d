# SPDX-License-Identifier: Apache-2.0
"""Messages whose instance is busy elsewhere, on RabbitMQ: what its consumer timeout makes of them, and `refused = "requeue"`."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from brokers import Brokers, RabbitStreams, config, hold  # noqa: E402
from harness import wait_until  # noqa: E402
from rabbit import QUORUM  # noqa: E402


class One(Brokers):
    """A stream that is held, on a queue with settings of the test's own."""

    def held(self, rabbitmq=None, replicas=1, more=None, **side):
        """Replicas with a held stream; each test of this file has one item on its way to it."""
        self.database = self.postgres()
        self.migrate(self.database)
        self.sides = [RabbitStreams(rabbitmq or self.rabbitmq(), self.folder(), **side)]
        self.more = more or {}
        engines = [self.replica(f"r{number}").start() for number in range(replicas)]
        self.name = self.open(["held"])[self.sides[0]][0]
        hold(self.database, [self.name])
        self.sides[0].send(self.sides[0].items([self.name], 1, 1, final=True))
        return engines

    def release(self):
        hold(self.database, [self.name], on=False)
        self.finish({self.sides[0]: {self.name: 1}})

    def received(self, engines):
        return sum(self.sides[0].deliveries(engine, "received") for engine in engines)


def pass_time(seconds):
    """The length is what these tests are about."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 5, "time to pass", interval=0.1)


class ConsumerTimeout(One):
    timeout = 150

    def broker(self):
        """Closes the channel of who has a message for longer than ten seconds, and looks every second."""
        return self.rabbitmq(settings={"consumer_timeout": 10000}, advanced="[{rabbit, [{channel_tick_interval, 1000}]}].\n")

    def test_25_seconds_told_and_not_told(self):
        """The engine that knows of the timeout keeps the message before it; the other loses its channel, and goes on."""
        rabbitmq = self.broker()
        told, = self.held(rabbitmq, consumer_timeout="PT10S")
        known = self.database, self.sides, self.name
        untold, = self.held(rabbitmq)
        held_since = time.monotonic()
        wait_until(lambda: known[1][0].kept(known[0]) == 1, 9, "the message to be kept")
        untold.wait_log("closed the channel", 40)
        pass_time(held_since + 25 - time.monotonic())
        side = self.sides[0]
        wait_until(lambda: side.metric(untold, "sutra_unsettled_deliveries") == 1, 20, "the message to be held again")
        self.assertGreaterEqual(self.received([untold]), 3)
        self.release()
        self.assertEqual(2, side.effects(self.database))
        self.database, self.sides, self.name = known
        self.release()
        self.assertEqual(2, self.received([told]))
        self.assertNotIn("closed the channel", told.log_text())
        for engine in (told, untold):
            self.assertEqual(0, engine.terminate())


class Requeue(One):
    SECONDS = 8

    def test_a_classic_queue_bounces_with_pauses(self):
        engines = self.held(replicas=2, refused="requeue")
        wait_until(lambda: self.received(engines) > 2, 20, "it to bounce")
        before, began = self.received(engines), time.monotonic()
        pass_time(self.SECONDS)
        bounces, took = self.received(engines) - before, time.monotonic() - began
        print(f"{bounces} bounces in {took:.1f} s", file=sys.stderr)
        self.assertGreater(bounces, 2)
        self.assertLess(bounces / took, 3)
        self.assertEqual(0, self.sides[0].kept(self.database))
        self.release()
        for engine in engines:
            self.assertEqual(0, engine.terminate())

    def test_a_quorum_queue_that_counts_is_spared(self):
        """It is returned once, which shows the count; and then held for longer than all its lives would last."""
        limit = 3
        engine, = self.held(refused="requeue", arguments={**QUORUM, "x-delivery-limit": limit},
                            more={"refusal.backoff.max": "PT0.1S"})
        side = self.sides[0]
        wait_until(lambda: side.deliveries(engine, "refused") >= 20, 30, "twenty refusals")
        self.assertLessEqual(self.received([engine]), 3)
        self.assertIn("counts how often a message comes back", engine.log_text())
        self.release()
        self.assertEqual(0, engine.terminate())


if __name__ == "__main__":
    unittest.main()
