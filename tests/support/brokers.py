# SPDX-License-Identifier: Apache-2.0
"""The streams of saga.py on Kafka and on RabbitMQ under one face, for tests of what both must do, also at once.

    class Both(Brokers):
        def test_it(self):
            engine = self.prepare().start()
            streams = self.open(["s0", "s1"])     # names by side
            hold(self.database, [streams[side][0] for side in self.sides])
            for side, opened in streams.items():
                side.send(side.items(opened, 1, 3, final=True))
            …
            self.finish({side: {stream: 3 for stream in opened} for side, opened in streams.items()})

Every message has an event id: CloudEvents headers on Kafka, the message-id on RabbitMQ.
"""

import json
import os
import uuid

import rabbit
from amqp import Message
from harness import Case, Record, wait_until
from saga import STREAMS, dead_letters, distinct, kafka_connection, statuses, store, write_package


class Item:
    """An item of a stream; number 0 is the stream's opening."""

    def __init__(self, stream, number=0, final=False):
        self.stream, self.number = stream, number
        self.kind = "item" if number else "open"
        self.id = f"{stream}-{number}"
        self.body = json.dumps({"stream": stream, "number": number, "final": final} if number else {"stream": stream})


class Streams:
    """What is the same for both. `settings` are more of the inbound channel's."""

    def __init__(self, folder, transport, items, passed, settings):
        self.packages = os.path.join(folder, "packages")
        self.channel = self.name + "-items"
        bpmn = STREAMS.replace('channel="items"', f'channel="{self.channel}"').replace(
            'channel="passed"', f'channel="{self.name}-passed"').replace('"Stream"', f'"Stream-{self.name}"')
        write_package(os.path.join(self.packages, "streams-" + self.name), [
            {"name": self.channel, "transport": transport, "bind": items, **settings},
            {"name": self.name + "-passed", "direction": "outbound", "transport": transport, "bind": passed,
             **({"key": "stream"} if transport == "kafka" else {})},
        ], {"streams.bpmn": bpmn}, "streams-" + self.name)

    @staticmethod
    def items(streams, first, count, final=False):
        """Items first … first+count-1 of each stream, those of one stream in order."""
        last = first + count - 1
        return [Item(stream, number, final and number == last) for number in range(first, last + 1) for stream in streams]

    def metric(self, engine, name, **labels):
        return int(engine.metric(name, channel=self.channel, **labels))

    def deliveries(self, engine, outcome):
        return self.metric(engine, "sutra_deliveries_total", outcome=outcome)

    def kept(self, database, where="true"):
        return database.count(f"select count(*) from sutra.inbox_message where channel = '{self.channel}' and {where}")

    def effects(self, database):
        """How many items and openings have had their effect."""
        return database.count(f"select count(*) from sutra.inbox where instance_id in (select id from sutra.instance "
                              f"where process = 'Stream-{self.name}')")

    def account(self, case, items):
        """What was passed on: of each stream as many items as `items` says, each once and in order. Returns the bodies."""
        passed = self.passed(case)
        case.assertEqual({0}, {item["disorder"] for item in passed})
        seen = {}
        for item in passed:
            seen.setdefault(item["stream"], []).append(item["number"])
        case.assertEqual({stream: list(range(1, count + 1)) for stream, count in items.items()}, seen)
        return passed


class KafkaStreams(Streams):
    name = "kafka"

    def __init__(self, kafka, folder, partitions=1, **settings):
        self.kafka = kafka
        self.properties = {}
        self.topic, self.passed_topic = (kafka.topic(name, partitions) for name in ("items", "passed"))
        self.group = "g-" + self.topic
        super().__init__(folder, "kafka", self.topic, self.passed_topic, {"group": self.group, **settings})

    def connection(self):
        return kafka_connection(self.kafka.bootstrap, **self.properties)

    def send(self, items, keyed=True):
        self.kafka.produce(self.topic, [Record(item.stream if keyed else None, item.body, [
            ("ce_specversion", "1.0"), ("ce_id", item.id), ("ce_source", "/tests"), ("ce_type", item.kind),
            ("content-type", "application/json")]) for item in items], timeout=60, enable_idempotence="true")

    def passed(self, case):
        return [record.json() for record in distinct(case, self.kafka.consume(self.passed_topic))]

    def unsettled(self):
        """What the broker has and is not rid of."""
        return self.kafka.lag(self.topic, self.group)


class RabbitStreams(Streams):
    name = "rabbit"

    def __init__(self, rabbitmq, folder, arguments=None, consumer_timeout=None, **settings):
        self.rabbitmq = rabbitmq
        self.consumer_timeout = consumer_timeout
        mark = uuid.uuid4().hex[:8]
        self.queue, self.passed_queue = f"items-{mark}", f"passed-{mark}"
        with rabbitmq.connect() as amqp:
            for queue in (self.queue, self.passed_queue):
                amqp.declare(queue, arguments=arguments)
        super().__init__(folder, "amqp", self.queue, self.passed_queue, settings)

    def connection(self):
        limit = {"consumer-timeout": self.consumer_timeout} if self.consumer_timeout else {}
        return {"name": "amqp", "transport": "amqp", "url": self.rabbitmq.url, "heartbeat": "PT2S", **limit}

    def send(self, items, keyed=True):
        with self.rabbitmq.connect() as amqp:
            amqp.publish_all("", self.queue, [Message(item.body, message_id=item.id, type=item.kind) for item in items])

    def passed(self, case):
        with self.rabbitmq.connect() as amqp:
            messages = amqp.get_all(self.passed_queue)
        # A publication whose confirmation was lost may come twice, as the same message.
        return list({message.message_id: rabbit.json_of(message) for message in messages}.values())

    def ready(self):
        with self.rabbitmq.connect() as amqp:
            return amqp.ready(self.queue)

    def state(self):
        """Messages ready and unacknowledged. Of a quorum queue the figures are seconds old."""
        rows = [line.split() for line in self.rabbitmq.control(
            "list_queues", "name", "messages_ready", "messages_unacknowledged").splitlines()]
        return next((int(row[1]), int(row[2])) for row in rows if row and row[0] == self.queue)

    def unsettled(self):
        return sum(self.state())


def config(database, sides, **more):
    """The configuration of an engine for these sides, whose packages must be in one folder."""
    return {"deployment.dir": sides[0].packages, **store(database), **more,
            "connections": [side.connection() for side in sides]}


def hold(database, streams, on=True):
    """Claims the instances of these streams for a replica that does not exist and never gets late, or gives them back."""
    rabbit.RabbitStreams.hold(database, streams, on)


def wait_open(database, count, timeout=40):
    wait_until(lambda: statuses(database).get("SUSPENDED", 0) == count, timeout, f"{count} streams to wait")


def wait_done(database, count, timeout=60):
    """Until so many streams have ended, and everything is sent and nothing kept."""
    wait_until(lambda: statuses(database).get("COMPLETED", 0) == count, timeout, f"{count} streams to end")
    wait_until(lambda: database.count("select count(*) from sutra.outbox_entry") == 0, 30, "an empty outbox")
    wait_until(lambda: database.count("select count(*) from sutra.inbox_message") == 0, 10, "nothing kept")


class Brokers(Case):
    """A test with streams on one of the brokers, or on both."""

    timeout = 120

    def prepare(self, kafka=True, rabbit=True, **more):
        """Packages on the brokers asked for, and an engine that is not started yet."""
        self.database = self.postgres()
        self.migrate(self.database)
        self.packages = self.folder()
        self.sides = ([KafkaStreams(self.kafka(), self.packages)] if kafka else []) + (
            [RabbitStreams(self.rabbitmq(), self.packages)] if rabbit else [])
        self.more = more
        return self.replica()

    def replica(self, name="one"):
        return self.sutra(config(self.database, self.sides, **self.more), start=False, name=name)

    def open(self, names):
        """The names of the streams by side, all of them open and waiting."""
        streams = {side: [f"{side.name}-{name}" for name in names] for side in self.sides}
        for side, opened in streams.items():
            side.send([Item(stream) for stream in opened])
        wait_open(self.database, sum(map(len, streams.values())))
        return streams

    def finish(self, items):
        """Everything has settled, each item had its effect once and in order; `items` by side."""
        wait_done(self.database, sum(map(len, items.values())))
        for side in self.sides:
            side.account(self, items[side])
            wait_until(lambda side=side: side.unsettled() == 0, 20, "the broker to be rid of everything")
        self.assertEqual({}, dead_letters(self.database))
