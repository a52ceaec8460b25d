# SPDX-License-Identifier: Apache-2.0
"""What a message that must wait costs at the broker, on RabbitMQ 3.10, 4.0 and 4.3, on classic and on quorum queues.

Between these the rules changed of what counts as a failed delivery, what is dropped after how many, and where in its queue a
returned message goes. The engine's answer is the same on all: while it lives it returns nothing.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
from rabbit import QUORUM, RabbitStreams  # noqa: E402
from saga import dead_letters, statuses  # noqa: E402

# What 4.x has by itself.
LIMITED = {**QUORUM, "x-delivery-limit": 20}


class Settle:
    """The tests; a subclass names the era, and what a quorum queue says of a message that came back.

    RETURNED    the headers after a return by an engine that stopped
    LOST        the headers after so many engines died with it
    """

    timeout = 60

    def replica(self, arguments, held=("s0", "s1"), free=("s2", "s3")):
        """An engine with these streams open, of which some are somebody else's for the time being."""
        self.rabbit = self.rabbitmq(era=self.era)
        self.database = self.postgres()
        self.migrate(self.database)
        self.streams = RabbitStreams(self.rabbit, self.folder(), arguments)
        self.engine = self.sutra(self.streams.config(self.database))
        self.streams.send([self.streams.opening(name) for name in held + free])
        wait_until(lambda: statuses(self.database).get("SUSPENDED", 0) == len(held + free), 20, "the streams to wait")
        self.streams.hold(self.database, held)

    def items(self, names, count):
        return [self.streams.item(name, number, final=number == count) for number in range(1, count + 1) for name in names]

    def wait_held(self, count):
        wait_until(lambda: self.engine.metric("sutra_unsettled_deliveries", channel="items") == count, 20,
                   f"{count} messages to be held")
        self.assertEqual(0, self.streams.waiting())

    def finish(self, count, items):
        """Gives the held streams back; every stream ends, and leaves nothing behind. Returns what they passed on."""
        self.streams.hold(self.database, ["s0", "s1"], on=False)
        self.streams.wait_done(self.database, count)
        self.assertEqual(0, self.engine.terminate())
        self.assertEqual(0, self.streams.waiting())
        self.assertEqual({}, dead_letters(self.database))
        self.assertEqual(count + sum(items.values()), self.database.count("select count(*) from sutra.inbox"))
        return self.streams.account(self, items)

    # (1) The engine lives: others go by, and nothing goes back.

    def wait_costs_nothing(self, arguments):
        self.replica(arguments)
        self.streams.send(self.items(["s0", "s1", "s2", "s3"], 10))
        self.streams.wait_done(self.database, 2)
        self.wait_held(20)
        wait_until(lambda: self.engine.metric("sutra_deliveries_total", channel="items", outcome="refused") >= 8, 20,
                   "the held messages to be refused again")
        if not arguments:  # of a quorum queue this figure is seconds old
            listed = self.rabbit.control("list_queues", "name", "messages_ready", "messages_unacknowledged").split()
            at = listed.index(self.streams.items)
            self.assertEqual(["0", "20"], listed[at + 1 : at + 3])
        received = self.engine.metric("sutra_deliveries_total", channel="items", outcome="received")
        self.assertEqual(4 + 40, received)
        self.streams.hold(self.database, ["s0", "s1"], on=False)
        self.streams.wait_done(self.database, 4)
        self.assertEqual(received, self.engine.metric("sutra_deliveries_total", channel="items", outcome="received"))
        passed = self.finish(4, {"s0": 10, "s1": 10, "s2": 10, "s3": 10})
        self.assertEqual({(0, 0)}, {(item.get("delivered") or 0, item.get("acquired") or 0) for item in passed})

    def test_a_message_that_waits_is_delivered_once_classic(self):
        self.wait_costs_nothing(None)

    def test_a_message_that_waits_is_delivered_once_quorum(self):
        self.wait_costs_nothing(QUORUM)

    # (2) It stops: what waited is back, in order.

    def stop_returns_all(self, arguments, headers):
        self.replica(arguments, free=("s2",))
        held = self.items(["s0", "s1"], 30)
        self.streams.send(held[:10] + self.items(["s2"], 5) + held[10:])
        self.streams.wait_done(self.database, 1)
        self.wait_held(60)
        self.assertEqual(0, self.engine.terminate())
        back = self.streams.peek(60)
        self.assertEqual([message.message_id for message in held], [message.message_id for message in back])
        self.assertEqual({True}, {message.redelivered for message in back})
        self.assertEqual([headers] * 60, [counts(message) for message in back])
        self.engine.start()
        self.wait_held(60)
        self.finish(3, {"s0": 30, "s1": 30, "s2": 5})

    def test_a_stop_returns_everything_in_order_classic(self):
        self.stop_returns_all(None, {})

    def test_a_stop_returns_everything_in_order_quorum(self):
        self.stop_returns_all(QUORUM, self.RETURNED)

    # (3) It dies, and again: nothing is lost, and each death costs a message one delivery at most.

    def deaths_lose_nothing(self, arguments, headers):
        self.replica(arguments, free=("s2",))
        held = self.items(["s0", "s1"], 30)
        self.streams.send(held[:10] + self.items(["s2"], 5) + held[10:])
        self.streams.wait_done(self.database, 1)
        for death in range(DEATHS):
            self.wait_held(60)
            self.engine.kill()
            wait_until(lambda: self.streams.waiting() == 60, 10, "the messages to be back")
            if death < DEATHS - 1:
                self.engine.start()
        back = self.streams.peek(60)
        self.assertEqual([message.message_id for message in held], [message.message_id for message in back])
        self.assertEqual({True}, {message.redelivered for message in back})
        self.assertEqual([headers] * 60, [counts(message) for message in back])
        self.engine.start()
        self.finish(3, {"s0": 30, "s1": 30, "s2": 5})

    def test_deaths_lose_nothing_classic(self):
        self.deaths_lose_nothing(None, {})

    def test_deaths_lose_nothing_quorum(self):
        self.deaths_lose_nothing(LIMITED, self.LOST)


DEATHS = 3


def counts(message):
    return {name: value for name, value in message.headers.items() if name in ("x-delivery-count", "x-acquired-count")}


class RabbitMQ310(Settle, harness.Case):
    era = "3.10"
    RETURNED = {"x-delivery-count": 1}
    LOST = {"x-delivery-count": DEATHS}


class RabbitMQ40(Settle, harness.Case):
    """From here on a limit of 20 deliveries is the default of quorum queues; every return counts."""

    era = "4.0"
    RETURNED = {"x-delivery-count": 1}
    LOST = {"x-delivery-count": DEATHS}


class RabbitMQ43(Settle, harness.Case):
    """A return by a consumer that lives does not count as a failed delivery any more."""

    era = "4.3"
    RETURNED = {"x-acquired-count": 1}
    LOST = {"x-delivery-count": DEATHS, "x-acquired-count": DEATHS}


if __name__ == "__main__":
    unittest.main()
