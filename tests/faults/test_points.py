# SPDX-License-Identifier: Apache-2.0
"""Every fault point × kill, delay and, where the engine can be told that the step failed, failure.

A replica is armed and given orders, payments and numbered items. A killed one is started again, unarmed. Then
everything must be accounted for: nothing lost, nothing doubled, order kept, nothing left behind. A test whose point was
never hit fails. The tests are made from the list in src/base/fault.h, so a new point is tested from the day it exists; their
lines in the ring's report are the table.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
from saga import Saga, store  # noqa: E402

ORDERS, STREAMS, ITEMS = 30, 4, 6

# Which pass of a point is hit: late enough that there is something before it, and passed surely. Others: the second.
# commit_sent is passed by every durable write, also by those of the start.
PASS = {
    "commit_sent": 8, "offset_commit_before": 1, "offset_commit_after": 1, "outbox_delete_after": 1, "settle_before": 12,
    "publish_before": 9, "publish_after": 9, "confirm_before_delete": 9,
}

# At the others the code behind the point does not ask: what would have failed there is behind or before it.
CAN_FAIL = ("claim_before", "claim_after", "commit_before", "commit_sent", "commit_after", "offset_commit_before",
            "offset_commit_after")


class Points(harness.Case):
    timeout = 90

    def run_point(self, point, action):
        database, kafka = self.postgres(), self.kafka()
        self.migrate(database)
        saga = Saga(kafka, self.folder())
        engine = self.sutra({**saga.config(), **store(database), "engine.shards": 2, "lease.ttl": "PT10S", "lease.poll": "PT3S"},
                            start=False)
        engine.start(fault=f"{point}={action}@{PASS.get(point, 2)}")
        orders, streams = saga.orders(ORDERS), [f"s{i}" for i in range(STREAMS)]
        # In three portions, so that what a batch holds is not all there is.
        for at in range(0, ORDERS, 10):
            saga.send_orders(orders[at:at + 10])
            saga.send_payments(orders[at:at + 10])
            saga.send_items(streams, 1 + at // 10 * 2, 2, final=at == 20)
        if action == "kill":
            wait_until(lambda: not engine.alive(), 30, f"the end at {point}")
            self.assertEqual(-9, engine.wait())
            engine.start()
        saga.wait_done(database, ORDERS + STREAMS)
        self.assertIn((point, action.split(":")[0]), engine.fault_hits())
        saga.account(self, database, orders, STREAMS, ITEMS)
        self.assertEqual(0, engine.terminate())


def make(point, action):
    def test(self):
        self.run_point(point, action)

    setattr(Points, f"test_{point}_{action.split(':')[0]}", test)


for name in harness.fault_points():
    make(name, "kill")
    make(name, "delay:400")
    if name in CAN_FAIL:
        make(name, "fail")


class Table(unittest.TestCase):
    def test_no_point_is_left_out(self):
        tests = unittest.defaultTestLoader.getTestCaseNames(Points)
        points = harness.fault_points()
        self.assertGreaterEqual(len(points), 12)
        for point in points:
            self.assertIn(f"test_{point}_kill", tests)
            self.assertIn(f"test_{point}_delay", tests)
        self.assertEqual(2 * len(points) + len(CAN_FAIL), len(tests))


if __name__ == "__main__":
    unittest.main()
