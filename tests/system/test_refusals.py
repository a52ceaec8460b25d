# SPDX-License-Identifier: Apache-2.0
"""Messages whose instance is busy elsewhere: their price for those behind them, the broker and the replica; and their end.

"Elsewhere" is a claim set by hand for a replica that does not exist, as one that is busy for long would set it.
"""

import os
import statistics
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from brokers import Brokers, Item, hold, wait_open  # noqa: E402
from harness import wait_until  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


# --- one that is held ------------------------------------------------------------------------------------------------

PAIRS = 5
OTHERS = 200


class OneHeld(Brokers):
    timeout = 180
    goal = 0.8  # tests/bench/held asks for more, over longer runs
    items_each = 10

    def others_flow(self, kafka, rabbit):
        """Median over pairs of runs, one with a held stream and one without, of the throughput of the other streams."""
        engine = self.prepare(kafka, rabbit)
        engine.start()
        side, = self.sides
        others = self.open([f"o{number}" for number in range(OTHERS)])[side]
        held = [f"{side.name}-h{pair}" for pair in range(2 * PAIRS)]
        side.send([Item(stream) for stream in held])
        wait_open(self.database, OTHERS + len(held))
        ratios, sent, first = [], OTHERS + len(held), 1

        def run(stream):
            nonlocal sent, first
            if stream:
                hold(self.database, [stream])
                side.send(side.items([stream], 1, 2, final=True))
                wait_until(lambda: side.metric(engine, "sutra_held_deliveries") == 1, 20, "one to be held")
            items = side.items(others, first, self.items_each)
            first += self.items_each
            sent += len(items)
            began = time.monotonic()
            side.send(items)
            wait_until(lambda: side.deliveries(engine, "committed") >= sent, 60, "the others", interval=0.005)
            took = time.monotonic() - began
            if stream:
                # It and the one behind it waited all the while.
                wait_until(lambda: side.metric(engine, "sutra_unsettled_deliveries") == 2, 10, "all but two to be settled")
                self.assertEqual(sent, side.deliveries(engine, "committed"))
                hold(self.database, [stream], on=False)
                sent += 2
                wait_until(lambda: side.deliveries(engine, "committed") == sent, 20, "the held ones")
            return len(items) / took

        for pair, stream in enumerate(held):
            if pair == PAIRS and statistics.median(ratios) >= self.goal:
                break  # so many more only where other work on the machine may have told
            rates = {}
            for which in (stream, None) if pair % 2 else (None, stream):
                rates[which is not None] = run(which)
            ratios.append(rates[True] / rates[False])
            print(f"{side.name}: {rates[True]:.0f} a second beside a held one, {rates[False]:.0f} without", file=sys.stderr)
        print(f"{side.name}: ratios {' '.join(f'{ratio:.2f}' for ratio in ratios)}", file=sys.stderr)
        self.assertGreaterEqual(statistics.median(ratios), self.goal, ratios)
        rest = held[len(ratios):]
        side.send(side.items(others, first, 1, final=True) + side.items(rest, 1, 2, final=True))
        sent += OTHERS + 2 * len(rest)
        self.finish({side: {**{stream: first for stream in others}, **{stream: 2 for stream in held}}})
        # Each message was delivered once, the held ones too.
        self.assertEqual(sent, side.deliveries(engine, "received"))
        self.assertEqual(0, side.deliveries(engine, "duplicate"))
        self.assertEqual(0, engine.terminate())

    def test_others_flow_kafka(self):
        self.others_flow(True, False)

    def test_others_flow_rabbitmq(self):
        self.others_flow(False, True)

    @staticmethod
    def ticks(engine):
        with open(f"/proc/{engine.pid}/stat", encoding="ascii", errors="replace") as source:
            fields = source.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def share(self, engine, seconds=10):
        """The share of a core that the engine takes over some seconds; their length is what is measured here."""
        before, began = self.ticks(engine), time.monotonic()
        wait_until(lambda: time.monotonic() >= began + seconds, seconds + 5, "the end of the measurement", interval=0.1)
        return (self.ticks(engine) - before) / TICKS / (time.monotonic() - began)

    def test_waiting_costs_no_cpu(self):
        """What waits is one message of each broker."""
        engine = self.prepare(**{"refusal.backoff.max": "PT5S"})
        engine.start()
        streams = self.open(["held"])
        names = [name for opened in streams.values() for name in opened]
        idle = self.share(engine)
        hold(self.database, names)
        for side, opened in streams.items():
            side.send(side.items(opened, 1, 1, final=True))
        for side in self.sides:
            wait_until(lambda side=side: side.metric(engine, "sutra_held_deliveries") == 1, 20, "one to be held")
        waiting = self.share(engine)
        print(f"of a core: idle {idle:.4f}, while two messages wait {waiting:.4f}", file=sys.stderr)
        self.assertLessEqual(waiting, idle + 0.02)
        for side in self.sides:
            self.assertEqual(1, side.metric(engine, "sutra_held_deliveries"))
            self.assertEqual(2, side.deliveries(engine, "received"))
        hold(self.database, names, on=False)
        self.finish({side: {opened[0]: 1} for side, opened in streams.items()})
        self.assertEqual(0, engine.terminate())


# --- all that are under way are held ---------------------------------------------------------------------------------

WINDOW = 256


class AllHeld(Brokers):
    def test_what_frees_them_is_behind_them_claims(self):
        """More than the window is refused; the operator gives the instances back when he sees what came behind them all."""
        engine = self.prepare()
        engine.start()
        streams = self.open(["gate"] + [f"s{number}" for number in range(WINDOW + 20)])
        held = [name for opened in streams.values() for name in opened[1:]]
        hold(self.database, held)
        for side, (gate, *others) in streams.items():
            side.send(side.items(others, 1, 2, final=True) + [Item(gate, 1, True)])
        wait_until(lambda: self.database.count("select count(*) from sutra.instance where status = 'COMPLETED'") == 2, 60,
                   "what is behind them")
        for side in self.sides:
            self.assertGreaterEqual(side.kept(self.database), WINDOW // 2)
        hold(self.database, held, on=False)
        self.finish({side: {gate: 1, **{name: 2 for name in others}} for side, (gate, *others) in streams.items()})
        for side in self.sides:
            self.assertEqual(3 * (WINDOW + 20) + 2, side.deliveries(engine, "received"))
        self.assertEqual(0, engine.terminate())

    def test_what_frees_them_is_behind_them_openings(self):
        """Nobody waits for them until the openings have come, which are behind them all."""
        engine = self.prepare()
        names = {side: [f"{side.name}-s{number}" for number in range(WINDOW + 20)] for side in self.sides}
        for side, streams in names.items():
            # On Kafka an opening with the key of its items would have to wait for them.
            side.send(side.items(streams, 1, 2, final=True))
            side.send([Item(stream) for stream in streams], keyed=False)
        engine.start()
        self.finish({side: {name: 2 for name in streams} for side, streams in names.items()})
        self.assertEqual(0, engine.terminate())


# --- a refusal that outlasts its bounds ------------------------------------------------------------------------------


class Kept(Brokers):
    def test_it_is_kept_and_found_again_after_kill_9(self):
        one = self.prepare(**{"inbox.recovery-threshold": "PT1S"})
        hold_for = {"SUTRA_REFUSAL_HOLD": "PT1S"}
        one.start(env=hold_for)
        streams = self.open(["held", "free"])
        held = [opened[0] for opened in streams.values()]
        hold(self.database, held)
        for side, opened in streams.items():
            side.send(side.items(opened, 1, 2))
        for side in self.sides:
            wait_until(lambda side=side: side.kept(self.database) == 2, 30, "two kept messages")
            wait_until(lambda side=side: side.unsettled() == 0, 20, "the broker to be rid of them")
        # What comes later waits for them, and is kept too.
        for side, opened in streams.items():
            side.send(side.items(opened, 3, 1))
        for side in self.sides:
            wait_until(lambda side=side: side.kept(self.database) == 3, 30, "three kept messages")
            wait_until(lambda side=side: side.unsettled() == 0, 20, "the broker to be rid of the third")
        one.kill()
        two = self.replica("two").start(env=hold_for)
        for side, opened in streams.items():
            side.send(side.items(opened, 4, 1, final=True))
        two.wait_log("took over 3 kept messages", 40)
        wait_until(lambda: self.database.count("select count(*) from sutra.instance where status = 'COMPLETED'") == 2, 60,
                   "those that are free")
        hold(self.database, held, on=False)
        self.finish({side: {name: 4 for name in opened} for side, opened in streams.items()})
        self.assertEqual(0, two.terminate())


if __name__ == "__main__":
    unittest.main()
