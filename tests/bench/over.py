# SPDX-License-Identifier: Apache-2.0
"""`sutra serve` under hold-relay over a broker: topics or queues of each run's own, a package that uses them, the load.

    with over.Kafka() as broker:                # or over.RabbitMQ()
        side = broker.fresh()
        engine = side.engine(postgres)          # ready when it returns
        result = side.load(10)                  # seconds; rate=… in steps a second for an open loop
"""

import json
import os
import shutil
import subprocess
import sys
import uuid

import bench as base

sys.path.insert(0, os.path.join(base.ROOT, "tests", "support"))
import harness  # noqa: E402
from harness import wait_until  # noqa: E402

PARTITIONS = 4
CHANNELS = ("orders", "payments", "stock", "replies")
PACKAGE = os.path.join(base.ROOT, "tests", "bench", "hold-relay")


def cpu_seconds(pid):
    """User and system time of a process with all its threads, and of those children that it has waited for."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def write_copy(folder, number, transport):
    """The package with names of its own, all channels on one transport."""
    package = os.path.join(folder, f"hold-relay-{number}")
    shutil.copytree(PACKAGE, package)
    with open(os.path.join(package, "package.conf"), "w", encoding="utf-8") as out:
        out.write(harness.libconfig({"tenant": "default", "module": f"hold-relay-{number}", "version": "1.0.0"}))
    with open(os.path.join(package, "channels.conf"), "w", encoding="utf-8") as out:
        out.write(harness.libconfig({"channels": [
            {"name": f"{name}-{number}", "transport": transport, "bind": f"{name}-{number}",
             **({"direction": "outbound"} if name in ("stock", "replies") else {})} for name in CHANNELS]}))
    path = os.path.join(package, "bpmn", "order.bpmn")
    with open(path, encoding="utf-8") as source:
        text = source.read()
    for name in CHANNELS:
        text = text.replace(f'channel="{name}"', f'channel="{name}-{number}"')
    with open(path, "w", encoding="utf-8") as out:
        out.write(text.replace('<process id="Order"', f'<process id="Order{number}"'))


class Side:
    """Topics or queues for one run. `broker` is a running Kafka or RabbitMQ of the harness."""

    def __init__(self, broker):
        self.broker = broker
        self.mark = uuid.uuid4().hex[:8]
        self.folder = harness.scratch("bench")
        self.environment = {**os.environ, **broker.variables(), "SUTRA_BENCH_MARK": self.mark,
                            "SUTRA_BENCH_PARTITIONS": str(PARTITIONS)}
        self.environment.setdefault("SUTRA_BENCH_WINDOW", base.ENGINE["SUTRA_BENCH_WINDOW"])
        self.make()
        self.write_package()

    def write_package(self):
        package = os.path.join(self.folder, "packages", "hold-relay")
        shutil.copytree(PACKAGE, package)
        with open(os.path.join(package, "channels.conf"), "w", encoding="utf-8") as out:
            out.write(harness.libconfig({"channels": [
                {"name": name, "transport": self.transport, "bind": f"{name}-{self.mark}",
                 **({"direction": "outbound"} if name in ("stock", "replies") else {"max-in-flight": 4096}),
                 **self.channel(name)} for name in CHANNELS]}))

    def engine(self, postgres, **more):
        """A replica that is ready."""
        config = {
            "deployment.dir": os.path.join(self.folder, "packages"), "datasource.url": postgres.url,
            "engine.shards": int(base.ENGINE["SUTRA_ENGINE_SHARDS"]),
            "datasource.pool-size": int(base.ENGINE["SUTRA_DATASOURCE_POOL_SIZE"]),
            "log.level": "warning", "connections": [self.connection()], **more}
        env = {name: value for name, value in os.environ.items() if name.startswith("SUTRA_DATASOURCE_")
               or name.startswith("SUTRA_ENGINE_")}
        return harness.Sutra(config, env=env).start()

    def relay(self):
        """The reference in the engine's place."""
        return subprocess.Popen([harness.built("brokers"), "relay", self.name], env=self.environment)

    def load_begin(self, seconds, rate=None):
        command = [harness.built("brokers"), "load", self.name, str(seconds), *([str(rate)] if rate else [])]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def load_end(load, timeout=180):
        try:
            text = load.communicate(timeout=timeout)[0]
        finally:
            load.kill()
        if load.returncode:
            raise harness.ServiceError(f"the load ended with {load.returncode}")
        result = json.loads(text)
        if not result["steps"]:
            raise harness.ServiceError("nothing came out for all that was sent")
        return result

    def load(self, seconds, rate=None):
        return self.load_end(self.load_begin(seconds, rate), seconds + 120)

    def close(self):
        harness.remove(self.folder)


class KafkaSide(Side):
    name = transport = "kafka"

    def make(self):
        for channel in CHANNELS:
            self.broker.create_topic(f"{channel}-{self.mark}", PARTITIONS)

    @staticmethod
    def channel(name):
        return {"key": "orderId"} if name in ("stock", "replies") else {"idempotency-key-header": "sutra-outbox-key"}

    def connection(self):
        return {"name": "kafka", "transport": "kafka", "properties": [f"bootstrap.servers={self.broker.bootstrap}"]}

    def left(self):
        """Messages that the broker is not rid of."""
        return sum(self.broker.lag(f"{name}-{self.mark}", f"sutra.default.{name}") for name in ("orders", "payments"))

    def close(self):
        super().close()
        for channel in CHANNELS:
            self.broker.delete_topic(f"{channel}-{self.mark}")


class RabbitSide(Side):
    name = "rabbitmq"
    transport = "amqp"

    def make(self):
        with self.broker.connect() as amqp:
            for channel in CHANNELS:
                amqp.declare(f"{channel}-{self.mark}")

    @staticmethod
    def channel(_name):
        return {}

    def connection(self):
        return {"name": "amqp", "transport": "amqp", "url": self.broker.url}

    def left(self):
        rows = [line.split() for line in self.broker.control("list_queues", "name", "messages").splitlines()]
        return sum(int(row[1]) for row in rows if row and row[0].endswith(self.mark))

    def close(self):
        super().close()
        for channel in CHANNELS:
            self.broker.control("delete_queue", f"{channel}-{self.mark}")


class Kafka(harness.Kafka):
    """A broker at its best: with the JVM's second compiler."""

    def __init__(self):
        super().__init__(fast=True, heap="512m")

    def fresh(self):
        return KafkaSide(self)


class RabbitMQ(harness.RabbitMQ):
    def fresh(self):
        return RabbitSide(self)
