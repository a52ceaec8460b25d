# SPDX-License-Identifier: Apache-2.0
"""The examples that need services: two-brokers, and order-saga on real ones. (What needs none: ring flow.)"""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from amqp import AmqpClient, Message  # noqa: E402
from harness import Process, wait_until  # noqa: E402

SCRIPT = os.path.join(harness.ROOT, "examples", "two-brokers", "run")


class Script:
    def __init__(self, log):
        self.process = Process("two-brokers", log)

    def text(self):
        return self.process.log_text()

    def line(self, pattern):
        return wait_until(lambda: re.search(pattern, self.text()) or not self.process.must_live(), 90, pattern)

    def seen(self, what):
        return self.line(rf"(?m)^ *{re.escape(what)} +(\S+)").group(1)

    def close(self):
        if self.process.alive():
            self.process.terminate(30)

    def tail(self):
        return self.process.log_tail()


class TwoBrokers(harness.Case):
    timeout = 150

    def start(self, *arguments, **environment):
        self.needs("postgresql", "kafka", "rabbitmq")
        environment.setdefault("SUTRA_BINARY", harness.built("sutra", "SUTRA_BINARY"))
        run = self.use(Script(os.path.join(self.folder(), "log")))
        run.process.start([SCRIPT, "--no-install", *arguments], env={**os.environ, **environment})
        return run

    def test_it_shows_what_it_says(self):
        run = self.start()
        self.assertEqual(0, run.process.wait(140), run.text())
        for what, seen in (("receipts to the bank, through RabbitMQ", "600"), ("deliveries by RabbitMQ", "600"),
                           ("of which redelivered", "0"), ("messages that the database kept", "0")):
            self.assertEqual(seen, run.seen(what))
        self.assertNotIn("wrong", run.text())

    def test_a_payment_too_many_with_kept_messages(self):
        run = self.start("--kept", ORDERS="20")
        port = int(run.line(r"RabbitMQ \S+ on 127\.0\.0\.1:(\d+)").group(1))
        run.line("(?m)^payments")
        with AmqpClient("127.0.0.1", port) as amqp:
            amqp.publish("", "payments", Message('{"orderId":"order-1","part":1,"amount":4}', message_id="order-1-1"))
        self.assertEqual(1, run.process.wait(140), run.text())
        self.assertRegex(run.text(), r"two-brokers: wrong: .*duplicates")
        self.assertEqual("3", run.seen("messages that the database kept"))

    def test_called_wrongly_or_with_no_engine(self):
        for arguments, environment, code in ((["--nonsense"], {}, 2), ([], {"ORDERS": "1"}, 2), ([], {"ORDERS": "many"}, 2)):
            with self.subTest(arguments=arguments, environment=environment):
                self.assertEqual(code, self.start(*arguments, **environment).process.wait(20))
        self.assertEqual(1, self.start(SUTRA_BINARY="/bin/false").process.wait(60))


class OrderSaga(harness.Case):
    timeout = 150

    def test_on_real_servers(self):
        self.needs("postgresql", "kafka")
        run = self.use(Script(os.path.join(self.folder(), "log")))
        script = os.path.join(harness.ROOT, "examples", "order-saga", "run")
        run.process.start([script, "--no-install", "--real"], env={
            "SUTRA_BINARY": harness.built("sutra", "SUTRA_BINARY"), **os.environ, "ORDERS": "20"})
        self.assertEqual(0, run.process.wait(140), run.text())
        self.assertEqual("200 orders, 200 replies, 0 wrong", run.text().splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
