# SPDX-License-Identifier: Apache-2.0
"""One replica on Kafka and RabbitMQ at once: its deaths and its stops, in the middle of work that comes from both."""

import os
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from brokers import Brokers, hold  # noqa: E402
from harness import wait_until  # noqa: E402

DEATHS = 30
STREAMS = 20


class Deaths(Brokers):
    timeout = 180

    def test_thirty_deaths_lose_and_double_nothing(self):
        """Two streams are held all the while: what is for them is kept, by one dead replica after the other."""
        self.prepare(**{"inbox.recovery-threshold": "PT1S", "refusal.hold": "PT1S"})
        self.sides[0].properties = {"session_timeout_ms": 1000}
        engine = self.replica().start()
        streams = self.open(["held"] + [f"s{number}" for number in range(STREAMS)])
        held = [opened[0] for opened in streams.values()]
        hold(self.database, held)
        chance, portion, began = random.SystemRandom(), 8, time.monotonic()
        for death in range(DEATHS):
            # On Kafka a replica that has just begun waits for the group to forget the last, so it is each broker's turn.
            side = self.sides[death % 2]
            known = side.effects(self.database)
            for other, opened in streams.items():
                other.send(side.items(opened, 1 + death * portion, portion, final=death == DEATHS - 1))
            wait_until(lambda side=side, known=known: side.effects(self.database) > known, 30, "effects", interval=0.005)
            threading.Event().wait(chance.uniform(0, 0.2))  # the moment is what is random, so this is no wait for anything
            engine.restart(ready=False)
        print(f"{DEATHS} deaths in {time.monotonic() - began:.1f} s", file=sys.stderr)
        hold(self.database, held, on=False)
        self.finish({side: {name: DEATHS * portion for name in opened} for side, opened in streams.items()})
        print(f"all done after {time.monotonic() - began:.1f} s", file=sys.stderr)
        for side, opened in streams.items():
            self.assertEqual(len(opened) * (DEATHS * portion + 1), side.effects(self.database))
        self.assertEqual(0, engine.terminate())


class Load(threading.Thread):
    """Items of these streams, a portion after the other, until finish() sends the last."""

    def __init__(self, streams, first):
        super().__init__(daemon=True)
        self.streams, self.next = streams, first
        self.over, self.error = threading.Event(), None

    def send(self, count, final=False):
        for side, opened in self.streams.items():
            side.send(side.items(opened, self.next, count, final))
        self.next += count

    def run(self):
        try:
            while not self.over.wait(0.05):
                self.send(5)
        except Exception as error:  # finish() raises it in the test
            self.error = error

    def finish(self):
        """Returns how many items each stream has."""
        self.over.set()
        self.join(60)
        if self.error:
            raise self.error
        self.send(1, final=True)
        return self.next - 1


class Stops(Brokers):
    SECONDS = 15

    def leftovers(self):
        return {what: self.database.count(f"select count(*) from sutra.{what}") for what in (
            "instance where claim_owner <> 'somebody else'", "outbox_entry where claim_owner is not null",
            "lease where holder is not null and expires_at > now()", "inbox_message where keeper is not null")}

    def test_sigterm_under_load(self):
        engine = self.prepare(**{"shutdown.timeout": f"PT{self.SECONDS}S", "lease.ttl": "PT60S"})
        engine.start(env={"SUTRA_REFUSAL_HOLD": "PT1S"})
        streams = self.open(["kept", "held"] + [f"s{number}" for number in range(STREAMS)])
        kept, held = ([opened[number] for opened in streams.values()] for number in (0, 1))
        hold(self.database, kept)
        load = Load(streams, 1)
        load.send(3)
        for side in self.sides:
            wait_until(lambda side=side: side.kept(self.database) == 3, 30, "three kept messages")
        # From here on refusals are held for as long as the test takes.
        self.assertEqual(0, engine.terminate(self.SECONDS + 5))
        self.assertEqual({0}, set(self.leftovers().values()), self.leftovers())
        engine.start()
        for side in self.sides:
            engine.wait_log(f"took over 3 kept messages.*{side.channel}", 30)
        hold(self.database, held)
        load.start()
        known = {side: side.effects(self.database) for side in self.sides}
        for side in self.sides:
            wait_until(lambda side=side: side.effects(self.database) > known[side] + 300, 60, "some load")
            wait_until(lambda side=side: side.metric(engine, "sutra_unsettled_deliveries") > 10, 20, "some that are held")
        began = time.monotonic()
        self.assertEqual(0, engine.terminate(self.SECONDS + 5))
        print(f"a stop under load took {time.monotonic() - began:.1f} s", file=sys.stderr)
        self.assertEqual({0}, set(self.leftovers().values()), self.leftovers())
        self.assertNotIn("did not settle within", engine.log_text())
        self.assertGreaterEqual(self.database.count("select count(*) from sutra.inbox_message"), 6)
        items = load.finish()
        self.given_back(streams)
        engine.start()
        hold(self.database, kept + held, on=False)
        self.finish({side: {name: items for name in opened} for side, opened in streams.items()})
        self.assertEqual(0, engine.terminate())

    def given_back(self, streams):
        """Everything that RabbitMQ has is in its queue, each stream's in order and without a gap."""
        side = self.sides[1]
        ready, unsettled = side.state()
        self.assertEqual(0, unsettled)
        numbers = {}
        with side.rabbitmq.connect() as amqp:
            for message in amqp.consume(side.queue, ready):
                stream, number = message.message_id.rsplit("-", 1)
                numbers.setdefault(stream, []).append(int(number))
        for stream in streams[side]:
            found = numbers.get(stream, [])
            self.assertEqual(list(range(found[0], found[-1] + 1)) if found else [], found, stream)
        self.assertGreater(len(numbers[streams[side][1]]), 1)

    def test_a_second_signal_ends_it_at_once(self):
        """The database hangs, so that nothing can be given up in good order."""
        self.server = self.postgres(own=True).server
        self.postgres = lambda: self.server.main
        engine = self.prepare(**{"shutdown.timeout": "PT60S"}).start()
        streams = self.open(["held", "s0"])
        held = [opened[0] for opened in streams.values()]
        hold(self.database, held)
        for side, opened in streams.items():
            side.send(side.items(opened, 1, 5, final=True))
        for side in self.sides:
            wait_until(lambda side=side: side.metric(engine, "sutra_unsettled_deliveries") == 5, 20, "five to be held")
        self.server.freeze()
        try:
            engine.send_signal(signal.SIGTERM)
            engine.wait_log("stopping on SIGTERM")
            self.assertTrue(engine.alive())
            engine.send_signal(signal.SIGTERM)
            self.assertEqual(-signal.SIGTERM, engine.wait(10))
        finally:
            self.server.thaw()
        engine.start()
        hold(self.database, held, on=False)
        self.finish({side: {name: 5 for name in opened} for side, opened in streams.items()})
        self.assertEqual(0, engine.terminate())


if __name__ == "__main__":
    unittest.main()
