# SPDX-License-Identifier: Apache-2.0
"""The AMQP transport in the running engine, on a real RabbitMQ: the order saga over queues, and what a broker does to it."""

import os
import subprocess
import sys
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from amqp import Message  # noqa: E402
from harness import Record, wait_until  # noqa: E402
from rabbit import QUORUM, RabbitSaga, RabbitStreams, json_of  # noqa: E402
from saga import dead_letters, kafka_connection, statuses, store, write_package  # noqa: E402

REPLY = """<?xml version="1.0" encoding="UTF-8"?>
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:q="urn:sutra:q:1.0" id="D" targetNamespace="urn:t">
  <process id="Ask" isExecutable="true">
    <extensionElements><q:variables><q:variable name="x" type="integer"/></q:variables></extensionElements>
    <startEvent id="Start"><extensionElements><q:source channel="questions"/></extensionElements>
      <messageEventDefinition/></startEvent>
    <sequenceFlow id="f1" sourceRef="Start" targetRef="Answer"/>
    <scriptTask id="Answer" scriptFormat="lua"><extensionElements>
      <q:reply channel="answers" body="{answer = payload.number * 2}"/>
      <q:header name="n" value="header['n']"/><q:header name="text" value="header['text']"/>
      <q:header name="yes" value="header['yes']"/><q:header name="list" value="header['list']"/>
      <q:header name="kind" value="event.type"/></extensionElements><script>x = 1</script></scriptTask>
    <sequenceFlow id="f2" sourceRef="Answer" targetRef="End"/>
    <endEvent id="End"/>
  </process>
</definitions>
"""


class Saga(harness.Case):
    timeout = 150

    def replica(self, rabbitmq, config=None, **saga):
        database = self.postgres()
        self.migrate(database)
        saga = RabbitSaga(rabbitmq, self.folder(), **saga)
        return database, saga, self.sutra({**saga.config(database), **(config or {})})

    def flow(self, arguments):
        rabbitmq = self.rabbitmq()
        database, saga, engine = self.replica(rabbitmq, arguments=arguments)
        orders = saga.orders(200)
        saga.send_orders(orders)
        wait_until(lambda: statuses(database).get("SUSPENDED", 0) == 200, 30, "the instances to park")
        saga.send_payments(orders)
        saga.wait_done(database, 200)
        self.assertEqual(0, engine.terminate())
        # What was not acknowledged is back in its queue now.
        with rabbitmq.connect() as amqp:
            self.assertEqual([0, 0], [amqp.ready(saga.queues[name]) for name in ("orders", "payments")])
        saga.account(self, database, orders)

    def test_classic_queues(self):
        self.flow(None)

    def test_quorum_queues(self):
        self.flow(QUORUM)

    def test_payments_from_rabbitmq_for_orders_of_kafka(self):
        rabbitmq, kafka = self.rabbitmq(), self.kafka()
        topics = {name: kafka.topic(name, partitions=2) for name in ("orders", "order-replies")}
        database = self.postgres()
        self.migrate(database)
        saga = RabbitSaga(rabbitmq, self.folder(), settings={
            "orders": {"transport": "kafka", "bind": topics["orders"], "group": "g-" + topics["orders"]},
            "order-replies": {"transport": "kafka", "bind": topics["order-replies"]},
        })
        self.sutra(saga.config(database, kafka_connection(kafka.bootstrap)))
        orders = saga.orders(30)
        saga.send_payments(orders)  # which then wait for their orders
        kafka.produce(topics["orders"], [Record(order.id, order.record().value) for order in orders])
        saga.wait_done(database, 30)
        replies = {record.json()["orderId"]: record.json() for record in kafka.consume(topics["order-replies"])}
        self.assertEqual({order.id: order.reply() for order in orders}, replies)
        self.assertEqual(30, len(saga.unique(self, "stock")))

    def test_kill_9_loses_and_doubles_nothing(self):
        for arguments in (None, QUORUM):
            with self.subTest(arguments=arguments):
                database, saga, engine = self.replica(self.rabbitmq(), arguments=arguments)
                orders = saga.orders(300)
                saga.send_orders(orders)
                saga.send_payments(orders)
                for share in (20, 100, 200):
                    wait_until(lambda goal=share: statuses(database).get("COMPLETED", 0) >= goal, 40, f"{share} instances")
                    engine.restart()
                saga.wait_done(database, 300)
                self.assertEqual(0, engine.terminate())
                saga.account(self, database, orders)

    def test_a_stop_gives_everything_back_in_order(self):
        rabbitmq = self.rabbitmq()
        # With hold.max-persisted = 0 they stay the broker's, however often they were tried.
        database, saga, engine = self.replica(rabbitmq, {"hold.max-persisted": 0})
        payments = saga.orders(50)
        saga.send_payments(payments)  # no order will ever wait for them
        wait_until(lambda: engine.metric("sutra_held_deliveries", channel="payments") == 50, 20, "the payments to be held")
        self.assertEqual(0, engine.terminate())
        with rabbitmq.connect() as amqp:
            back = amqp.get_all(saga.queues["payments"])
        self.assertEqual(["payment-" + order.id for order in payments], [message.message_id for message in back])
        self.assertEqual({True}, {message.redelivered for message in back})
        self.assertEqual({}, dead_letters(database))

    def test_messages_of_one_instance_keep_their_order(self):
        """Items of ten instances in one queue, before and behind their openings, over 16 lanes: each takes its own in order."""
        database = self.postgres()
        self.migrate(database)
        streams = RabbitStreams(self.rabbitmq(), self.folder())
        names = [f"s{number}" for number in range(10)]
        items = [streams.item(name, number, final=number == 20) for number in range(1, 21) for name in names]
        streams.send(items[:50] + [streams.opening(name) for name in names] + items[50:])
        self.sutra(streams.config(database, **{"engine.shards": 16}))
        streams.wait_done(database, 10)
        streams.account(self, {name: 20 for name in names})

    def test_reply_to_and_header_types(self):
        rabbitmq = self.rabbitmq()
        mark = uuid.uuid4().hex[:8]
        database = self.postgres()
        self.migrate(database)
        packages = os.path.join(self.folder(), "packages")
        write_package(os.path.join(packages, "ask"), [
            {"name": "questions", "transport": "amqp", "bind": f"questions-{mark}"},
            {"name": "answers", "direction": "outbound", "transport": "amqp", "bind": f"answers-{mark}"},
        ], {"ask.bpmn": REPLY}, "ask")
        with rabbitmq.connect() as amqp:
            amqp.declare(f"questions-{mark}")
            amqp.declare(f"my/answers-{mark}")
            self.sutra({"deployment.dir": packages, **store(database),
                        "connections": [{"name": "amqp", "transport": "amqp", "url": rabbitmq.url}]})
            amqp.publish("", f"questions-{mark}", Message(
                b'{"number":21}', {"n": 7, "text": "ä", "yes": True, "list": [1, "two"]}, message_id="m1", type="question",
                reply_to=f"my/answers-{mark}", correlation_id="c-1"))
            answer = wait_until(lambda: amqp.get(f"my/answers-{mark}"), 20, "the answer")
        self.assertEqual({"answer": 42}, json_of(answer))
        self.assertEqual("c-1", answer.correlation_id)
        answer.headers.pop("sutra-outbox-key")
        self.assertEqual({"n": 7, "text": "ä", "yes": True, "list": [1, "two"], "kind": "question"},
                         {name: answer.headers[name] for name in ("n", "text", "yes", "list", "kind")})


class Trouble(harness.Case):
    timeout = 150
    replica = Saga.replica

    def test_queue_declared_later_and_deleted(self):
        rabbitmq = self.rabbitmq()
        database = self.postgres()
        self.migrate(database)
        saga = RabbitSaga(rabbitmq, self.folder(), declare=False)
        engine = self.sutra(saga.config(database), ready=False)
        engine.wait_log(f"queue '{saga.queues['orders']}' does not exist", 20)
        with rabbitmq.connect() as amqp:
            saga.declare(amqp)
        engine.wait_ready(30)
        orders = saga.orders(20)
        saga.send_orders(orders[:10])
        wait_until(lambda: statuses(database).get("SUSPENDED", 0) == 10, 30, "the instances to park")
        with rabbitmq.connect() as amqp:
            amqp.delete(saga.queues["orders"])
            engine.wait_log("the broker cancelled the consumer", 20)
            saga.declare(amqp)
        saga.send_orders(orders[10:])
        saga.send_payments(orders)
        saga.wait_done(database, 20)
        saga.account(self, database, orders)

    def test_broker_restarts(self):
        for arguments in (None, QUORUM):
            with self.subTest(arguments=arguments):
                rabbitmq = self.rabbitmq(own=True)
                database, saga, engine = self.replica(rabbitmq, arguments=arguments)
                orders = saga.orders(100)
                saga.send_orders(orders)
                wait_until(lambda: statuses(database).get("SUSPENDED", 0) >= 20, 30, "instances to park")
                # A quorum queue of one node that was killed may stay without a leader (RabbitMQ 3.10), and hang its publishers.
                if arguments:
                    rabbitmq.stop()
                    rabbitmq.start()
                else:
                    rabbitmq.restart()
                engine.wait_ready(60)
                saga.send_payments(orders)
                saga.wait_done(database, 100)
                self.assertEqual(0, engine.terminate())
                saga.account(self, database, orders)

    def test_a_frozen_broker_is_left_and_found_again(self):
        rabbitmq = self.rabbitmq(own=True)
        database, saga, engine = self.replica(rabbitmq)
        rabbitmq.freeze()
        engine.wait_log("connecting again", 30)
        rabbitmq.thaw()
        orders = saga.orders(20)
        engine.wait_ready(60)
        saga.send_orders(orders)
        saga.send_payments(orders)
        saga.wait_done(database, 20)
        saga.account(self, database, orders)

    def test_an_unroutable_publication_waits_for_its_queue(self):
        rabbitmq = self.rabbitmq()
        database, saga, engine = self.replica(rabbitmq, settings={
            "order-replies": {"bind": "gone-exchange/reply"}, "stock": {"bind": "gone-" + uuid.uuid4().hex[:8]}})
        orders = saga.orders(5)
        saga.send_orders(orders)
        saga.send_payments(orders)
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == 5, 30, "the instances")
        failed = "select count(*) from sutra.outbox_entry where attempt_count > 0 and last_diagnostic_json like '%{}%'"
        wait_until(lambda: database.count(failed.format("no queue takes it")) == 5, 30, "the stock rows to be returned")
        wait_until(lambda: database.count(failed.format("no exchange")) == 5, 30, "the replies to find no exchange")
        with rabbitmq.connect() as amqp:
            amqp.exchange("gone-exchange")
            amqp.bind(saga.queues["order-replies"], "gone-exchange", "reply")
        wait_until(lambda: len(self.replies(saga)) >= 5, 40, "the replies")
        self.assertTrue(engine.alive())

    def replies(self, saga):
        self.seen = getattr(self, "seen", []) + saga.unique(self, "order-replies")
        return {message.message_id for message in self.seen}

    def test_a_memory_alarm_stops_publishing_and_nothing_else(self):
        rabbitmq = self.rabbitmq(own=True)
        database, saga, engine = self.replica(rabbitmq)
        orders = saga.orders(20)
        saga.send_orders(orders)
        wait_until(lambda: statuses(database).get("SUSPENDED", 0) == 20, 30, "the instances to park")
        wait_until(lambda: database.count("select count(*) from sutra.outbox_entry") == 0, 20, "an empty outbox")
        self.assertEqual(0, engine.terminate())
        saga.send_payments(orders)
        rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1MB")
        engine.start()
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == 20, 30, "payments to be consumed in the alarm")
        engine.wait_log("the broker takes no messages", 20)
        self.assertEqual(20, database.count("select count(*) from sutra.outbox_entry"))
        rabbitmq.control("set_vm_memory_high_watermark", "0.4")
        saga.wait_done(database, 20)
        self.assertEqual(0, engine.terminate())
        saga.account(self, database, orders)


class Tls(harness.Case):
    timeout = 120

    def certificates(self):
        folder = self.folder("tls")
        config = os.path.join(folder, "ext")
        with open(config, "w", encoding="ascii") as out:
            out.write("subjectAltName=IP:127.0.0.1,DNS:localhost\n")

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key",
                "-out", "ca.pem")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other CA", "-keyout",
                "other.key", "-out", "other.pem")
        for name in ("server", "client"):
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out",
                    name + ".csr")
            openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days",
                    "2", "-extfile", "ext", "-out", name + ".pem")
        return lambda name: os.path.join(folder, name)

    def test_both_sides_show_certificates(self):
        at = self.certificates()
        port = harness.free_port()
        rabbitmq = self.rabbitmq(settings={
            "listeners.ssl.default": port, "ssl_options.cacertfile": at("ca.pem"), "ssl_options.certfile": at("server.pem"),
            "ssl_options.keyfile": at("server.key"), "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
        })
        database = self.postgres()
        self.migrate(database)
        saga = RabbitSaga(rabbitmq, self.folder(), url=f"amqps://guest@localhost:{port}/")
        files = {"password": "guest", "cert-file": at("client.pem"), "key-file": at("client.key")}
        engine = self.sutra(saga.config(database, **files, **{"ca-file": at("ca.pem")}))
        orders = saga.orders(10)
        saga.send_orders(orders)
        saga.send_payments(orders)
        saga.wait_done(database, 10)
        saga.account(self, database, orders)
        self.assertEqual(0, engine.terminate())
        engine.configure(saga.config(database, **files, **{"ca-file": at("other.pem")}))
        engine.start(ready=False)
        engine.wait_log("connection 'amqp': localhost:.*trying again", 20)
        self.assertNotIn("connected to RabbitMQ", engine.log_text(whole=False))


if __name__ == "__main__":
    unittest.main()
