# SPDX-License-Identifier: Apache-2.0
"""The Kafka transport alone, against a real broker: what the engine's own tests would show only by their outcome."""
import os
import sys
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402


class KafkaTransport(harness.Case):
    timeout = 240

    def program(self):
        path = os.path.join(harness.build_dir(), "tests", "flow", "test_kafka_mock")
        if not os.access(path, os.X_OK):
            self.skipTest(f"{path} is not built")
        return path

    def run_program(self, kafka, tests):
        prefix = "t" + uuid.uuid4().hex[:8]
        for test in tests:
            kafka.create_topic(f"{prefix}-{test}", partitions=3)
        environment = dict(os.environ, SUTRA_TEST_KAFKA=kafka.bootstrap, SUTRA_TEST_PREFIX=prefix)
        return prefix, harness.run([self.program()], env=environment, timeout=220)

    def test_consumers_and_publishers(self):
        kafka = self.kafka()
        prefix, _ = self.run_program(kafka, ["committed", "members", "large"])
        # What the two consumers of the first test settled is committed, and nothing is left.
        self.assertEqual(200, kafka.count(f"{prefix}-committed"))
        self.assertEqual(0, kafka.lag(f"{prefix}-committed", f"{prefix}-committed"))
        self.assertEqual(0, kafka.lag(f"{prefix}-members", f"{prefix}-members"))


if __name__ == "__main__":
    unittest.main()
