# SPDX-License-Identifier: Apache-2.0
"""The workloads on RabbitMQ's queues: the order saga, and streams of numbered items (saga.py tells of both).

    streams = RabbitStreams(rabbitmq, case.folder(), QUORUM)
    case.sutra(streams.config(database))
    streams.send([streams.opening("s0"), streams.item("s0", 1), streams.item("s0", 2, final=True)])
    streams.wait_done(database, 1)
    streams.account(case, {"s0": 2})              # each item once and in order
"""

import json
import os
import random
import uuid

from amqp import Message
from harness import wait_until
from saga import STREAMS, Order, dead_letters, order_saga, statuses, store, write_package

QUORUM = {"x-queue-type": "quorum"}


def json_of(message):
    return json.loads(message.body)


class RabbitSaga:
    """The order saga with every channel on RabbitMQ, but those that `settings` says otherwise of."""

    def __init__(self, rabbitmq, folder, arguments=None, hold="PT30S", settings=None, declare=True, url=None):
        self.rabbitmq = rabbitmq
        self.mark = uuid.uuid4().hex[:8]
        self.arguments = arguments
        self.url = url or rabbitmq.url
        self.queues = {name: f"{name}-{self.mark}" for name in ("orders", "payments", "stock", "order-replies")}
        self.exchange = f"events-{self.mark}"
        self.made = 0
        self.chance = random.Random(self.mark)
        if declare:
            with rabbitmq.connect() as amqp:
                self.declare(amqp)
        channels = [
            {"name": "orders", "transport": "amqp", "bind": self.queues["orders"]},
            {"name": "payments", "transport": "amqp", "bind": self.queues["payments"],
             "unmatched": {"hold": hold, "then": "dead-letter"}},
            {"name": "stock", "direction": "outbound", "transport": "amqp", "bind": self.queues["stock"]},
            {"name": "order-replies", "direction": "outbound", "transport": "amqp", "bind": f"{self.exchange}/reply.order"},
        ]
        for channel in channels:
            channel.update((settings or {}).get(channel["name"], {}))
        self.packages = os.path.join(folder, "packages")
        write_package(os.path.join(self.packages, "order-saga"), channels, {"order.bpmn": order_saga()}, "order-saga")

    def declare(self, amqp):
        for queue in self.queues.values():
            amqp.declare(queue, arguments=self.arguments)
        amqp.exchange(self.exchange)
        amqp.bind(self.queues["order-replies"], self.exchange, "reply.#")

    def connection(self, **more):
        return {"name": "amqp", "transport": "amqp", "url": self.url, "heartbeat": "PT2S", **more}

    def config(self, database, *connections, **more):
        return {"deployment.dir": self.packages, **store(database),
                "connections": [self.connection(**more), *connections]}

    def orders(self, count):
        made = [Order(self.made + number, self.chance) for number in range(count)]
        self.made += count
        return made

    def send_orders(self, orders):
        with self.rabbitmq.connect() as amqp:
            amqp.publish_all("", self.queues["orders"], [
                Message(order.record().value, message_id="order-" + order.id, content_type="application/json")
                for order in orders])

    def send_payments(self, orders):
        with self.rabbitmq.connect() as amqp:
            amqp.publish_all("", self.queues["payments"], [
                Message(order.payment().value, message_id="payment-" + order.id) for order in orders])

    def wait_done(self, database, count, timeout=60, outbox_timeout=30):
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == count, timeout, f"{count} instances to complete")
        wait_until(lambda: database.count("select count(*) from sutra.outbox_entry") == 0,
                   outbox_timeout, "an empty outbox")

    def unique(self, case, queue):
        """The messages of a queue, those under one message-id once."""
        with self.rabbitmq.connect() as amqp:
            messages = amqp.get_all(self.queues[queue])
        first = {}
        for message in messages:
            case.assertRegex(message.message_id, r"^[0-9a-f-]{36}$")
            case.assertEqual(message.message_id, message.headers["sutra-outbox-key"])
            case.assertEqual(2, message.delivery_mode)
            case.assertEqual("application/json", message.content_type)
            before = first.setdefault(message.message_id, message)
            case.assertEqual(before.body, message.body)
        return list(first.values())

    def account(self, case, database, orders):
        """Nothing lost, nothing doubled, nothing left."""
        case.assertEqual({"COMPLETED": len(orders)}, statuses(database))
        case.assertEqual({}, dead_letters(database))
        case.assertEqual(2 * len(orders), database.count("select count(*) from sutra.inbox"))
        case.assertEqual(0, database.count("select count(*) from sutra.wait"))
        replies = [json_of(message) for message in self.unique(case, "order-replies")]
        case.assertEqual(len(orders), len(replies))
        case.assertEqual({order.id: order.reply() for order in orders}, {reply["orderId"]: reply for reply in replies})
        case.assertEqual(len(orders), len(self.unique(case, "stock")))


class RabbitStreams:
    """The package `streams` on two queues. A passed item also tells how often the queue says that it was delivered before."""

    def __init__(self, rabbitmq, folder, arguments=None):
        self.rabbitmq = rabbitmq
        mark = uuid.uuid4().hex[:8]
        self.items, self.passed = f"items-{mark}", f"passed-{mark}"
        with rabbitmq.connect() as amqp:
            for queue in (self.items, self.passed):
                amqp.declare(queue, arguments=arguments)
        body = "{stream = stream, number = number, disorder = disorder}"
        counted = body[:-1] + ", delivered = header['x-delivery-count'], acquired = header['x-acquired-count']}"
        self.packages = os.path.join(folder, "packages")
        write_package(os.path.join(self.packages, "streams"), [
            {"name": "items", "transport": "amqp", "bind": self.items},
            {"name": "passed", "direction": "outbound", "transport": "amqp", "bind": self.passed},
        ], {"streams.bpmn": STREAMS.replace(body, counted)}, "streams")

    def config(self, database, **more):
        return {"deployment.dir": self.packages, **store(database), **more,
                "connections": [{"name": "amqp", "transport": "amqp", "url": self.rabbitmq.url}]}

    @staticmethod
    def opening(stream):
        return Message(json.dumps({"stream": stream}), message_id="open-" + stream, type="open")

    @staticmethod
    def item(stream, number, final=False):
        return Message(json.dumps({"stream": stream, "number": number, "final": final}),
                       message_id=f"item-{stream}-{number}", type="item")

    def send(self, messages):
        with self.rabbitmq.connect() as amqp:
            amqp.publish_all("", self.items, messages)

    def waiting(self):
        """How many messages are in the queue and not at the engine."""
        with self.rabbitmq.connect() as amqp:
            return amqp.ready(self.items)

    def peek(self, count):
        """The messages in the queue, of which there must be so many, in order. They go back, with one delivery more counted."""
        wait_until(lambda: self.waiting() == count, 10, f"{count} messages in the queue")
        with self.rabbitmq.connect() as amqp:
            messages = amqp.consume(self.items, count)
        wait_until(lambda: self.waiting() == count, 10, "the messages to be back")
        return messages

    @staticmethod
    def hold(database, streams, on=True):
        """Claims the instances of these streams for a replica that does not exist and never gets late, or gives them back."""
        claim = "'somebody else', now() + interval '1 h'" if on else "null, null"
        names = ", ".join(f"'{stream}'" for stream in streams)
        database.psql(f"update sutra.instance set (claim_owner, claim_at) = row({claim}) where id in "
                      f"(select instance_id from sutra.alias where name = 'stream' and value in ({names}))")

    def wait_done(self, database, count, timeout=60):
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == count, timeout, f"{count} streams to end")
        wait_until(lambda: database.count("select count(*) from sutra.outbox_entry") == 0, 20, "an empty outbox")

    def account(self, case, items):
        """Takes what was passed on: of each stream as many items as `items` says, each once and in order. Returns it."""
        with self.rabbitmq.connect() as amqp:
            messages = amqp.get_all(self.passed)
        # A publication that was not confirmed in time may come twice, as the same message.
        passed = list({message.message_id: json_of(message) for message in messages}.values())
        case.assertEqual({0}, {item["disorder"] for item in passed})
        case.assertEqual({stream: list(range(1, count + 1)) for stream, count in items.items()},
                         {stream: [item["number"] for item in passed if item["stream"] == stream]
                          for stream in {item["stream"] for item in passed}})
        return passed
