# SPDX-License-Identifier: Apache-2.0
"""examples/order-saga/run in one process: it succeeds, and it fails when it should. (With real servers: ring system.)"""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
from harness import KafkaClient, Process, wait_until

SCRIPT = os.path.join(harness.ROOT, "examples", "order-saga", "run")


class Script:
    def __init__(self, log):
        self.process = Process("order-saga", log)

    def text(self):
        return self.process.log_text()

    def line(self, pattern):
        return wait_until(lambda: re.search(pattern, self.text()) or not self.process.must_live(), 60, pattern)

    def close(self):
        if self.process.alive():
            self.process.terminate(30)

    def tail(self):
        return self.process.log_tail()


class OrderSaga(harness.Case):
    timeout = 120

    def start(self, *arguments, **environment):
        environment.setdefault("SUTRA_BINARY", harness.built("sutra", "SUTRA_BINARY"))
        run = self.use(Script(os.path.join(self.folder(), "log")))
        run.process.start([SCRIPT, "--no-install", *arguments], env={**os.environ, **environment})
        return run

    def test_every_order_goes_its_way(self):
        run = self.start(ORDERS="3")
        self.assertEqual(0, run.process.wait(110), run.text())
        self.assertEqual("30 orders, 30 replies, 0 wrong", run.text().splitlines()[-1])

    def test_a_message_too_many(self):
        run = self.start(ORDERS="1")
        broker = KafkaClient(run.line(r"Kafka protocol on ([\d.:]+),").group(1))
        run.line("(?m)^orders")
        broker.kcat_produce("refunds", [("delivered-0", '{"orderId": "delivered-0", "amount": 80}')])
        self.assertEqual(1, run.process.wait(110), run.text())
        self.assertRegex(run.text(), r"(?m)^delivered +.*<-- wrong$")
        self.assertRegex(run.text(), r"order-saga: wrong: delivered-0: on refunds")

    def test_called_wrongly_or_with_no_engine(self):
        for arguments, environment in ((["--nonsense"], {}), ([], {"ORDERS": "0"}), ([], {"ORDERS": "many"})):
            with self.subTest(arguments=arguments, environment=environment):
                self.assertEqual(2, self.start(*arguments, **environment).process.wait(20))
        self.assertEqual(1, self.start(SUTRA_BINARY="/bin/false").process.wait(60))


if __name__ == "__main__":
    unittest.main()
