# SPDX-License-Identifier: Apache-2.0
"""examples/quickstart/run: it succeeds with both stores, and it fails when it should."""

import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
from harness import Process, wait_until

SCRIPT = os.path.join(harness.ROOT, "examples", "quickstart", "run")


class Quickstart(harness.Case):
    timeout = 90

    def start(self, *arguments, **environment):
        """The script on its way, with the program under test."""
        environment.setdefault("SUTRA_BINARY", harness.built("sutra", "SUTRA_BINARY"))
        run = self.use(Script(os.path.join(self.folder(), "log")))
        run.process.start([SCRIPT, "--no-install", *arguments], env={**os.environ, **environment})
        return run

    def succeeds(self, orders, *arguments):
        run = self.start(*arguments, ORDERS=str(orders))
        self.assertEqual(0, run.process.wait(80), run.text())
        self.assertEqual(f"{orders} orders, {orders} replies, 0 duplicates", run.text().splitlines()[-1])
        return run.text()

    def fails(self, run, message):
        self.assertEqual(1, run.process.wait(60), run.text())
        self.assertRegex(run.text(), "quickstart: .*" + message)
        self.assertNotRegex(run.text(), r"\d+ duplicates")

    def test_memory(self):
        self.succeeds(137)

    def test_one_order(self):
        self.succeeds(1)

    def test_postgres(self):
        self.postgres()  # skips, or fails if it is required, where there is none
        text = self.succeeds(137, "--postgres")
        self.assertRegex(text, r"database +137 COMPLETED, outbox 0, dead letters 0")

    def test_an_engine_that_never_ran(self):
        self.fails(self.start(SUTRA_BINARY="/bin/false"), "the engine ended")

    def test_an_engine_that_is_killed_midway(self):
        for line in ("payments", "orders"):
            with self.subTest(after=line):
                run = self.start(ORDERS="30")
                run.line(line)
                os.kill(int(run.line("engine", r"process (\d+)")), signal.SIGKILL)
                self.fails(run, "")

    def test_a_reply_too_many(self):
        run = self.start(ORDERS="10")
        broker = harness.KafkaClient(run.line("engine", r"on ([\d.:]+),"))
        run.line("payments")
        broker.kcat_produce("order-replies", [("nobody", '{"orderId":"nobody","status":"CONFIRMED"}')])
        self.fails(run, "1 replies are wrong")

    def test_called_wrongly(self):
        for arguments, environment in ((["--nonsense"], {}), ([], {"ORDERS": "0"}), ([], {"ORDERS": "many"})):
            with self.subTest(arguments=arguments, environment=environment):
                self.assertEqual(2, self.start(*arguments, **environment).process.wait(20))


class Script:
    def __init__(self, log):
        self.process = Process("quickstart", log)

    def text(self):
        return self.process.log_text()

    def line(self, word, pattern="()"):
        """Waits for the line that begins with the word; returns what the pattern's group matches in it."""
        found = wait_until(
            lambda: re.search(rf"^{word} .*?{pattern}", self.text(), re.M) or not self.process.must_live(), 60, word
        )
        return found.group(1)

    def close(self):
        if self.process.alive():
            self.process.terminate(30)

    def tail(self):
        return self.process.log_tail()


if __name__ == "__main__":
    unittest.main()
