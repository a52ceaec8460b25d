#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shop, the bank, and somebody who holds an order for ten seconds. examples/two-brokers/run calls it.

What it talks to the brokers with is the tests' (tests/support): kcat for Kafka, a small AMQP client for RabbitMQ.
"""

import json
import os
import sys
import time
import urllib.request

FOLDER = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "tests")
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "services")]
import kafka as kafka_service  # noqa: E402
from amqp import Message  # noqa: E402
from harness import KafkaClient, Postgres, RabbitMQ, Sutra, exit_on_signals, sutra, wait_until  # noqa: E402
from process import ServiceError, Unavailable, run  # noqa: E402

HOLD_S = 10
QUIET_S = 5  # at the end of the hold, where nothing else happens
PARTS = 3
PRICE = 4
CPU_MOST = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


class Kafka(kafka_service.Kafka, KafkaClient):
    """A broker and its kcat."""

    def make(self, topic):
        """By asking for it, as the broker here makes what it is asked for."""
        wait_until(lambda: f'topic "{topic}" with 4 partitions' in run(["kcat", "-b", self.bootstrap, "-L", "-t", topic]).stdout,
                   30, f"the topic {topic}", interval=0.1)


def say(what, text):
    print(f"{what:<16}{text}", flush=True)


class Shop:
    def __init__(self, count, kept):
        self.orders = [f"order-{number}" for number in range(count)]
        self.held, self.others = self.orders[0], self.orders[1:]
        self.kept = kept
        self.most_kept = 0
        self.engine = None
        self.started = []
        self.wrong = []

    # Servers

    def service(self, thing):
        self.started.append(thing)
        return thing.start()

    def close(self):
        for thing in reversed(self.started):
            thing.close()

    def start(self):
        self.postgres = self.service(Postgres(mode="durable"))
        self.database = self.postgres.main
        sutra("migrate", env={"SUTRA_DATASOURCE_URL": self.database.url,
                              "SUTRA_DATASOURCE_MIGRATE_URL": self.database.migrate_url})
        self.kafka = self.service(Kafka({"auto.create.topics.enable": "true", "num.partitions": "4"}))
        self.rabbitmq = self.service(RabbitMQ({"collect_statistics_interval": "1000"}, management=True))
        say("services", f"PostgreSQL {self.postgres.version()}, Kafka {self.kafka.version()} on {self.kafka.bootstrap}, "
            f"RabbitMQ {self.rabbitmq.version()} on 127.0.0.1:{self.rabbitmq.port}")
        with self.rabbitmq.connect() as amqp:
            # Where the broker can give a limit to returns there is one: whoever returned the held payments would lose them.
            amqp.declare("payments", arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
            amqp.declare("receipts")
        for topic in ("orders", "order-replies"):
            self.kafka.make(topic)
        self.engine = self.service(Sutra(self.config()))
        say("replica", f"process {self.engine.pid}, admin on http://127.0.0.1:{self.engine.port}")

    def config(self):
        packages = os.path.join(self.postgres.folder, "packages")
        os.makedirs(packages)
        os.symlink(os.path.join(FOLDER, "package"), os.path.join(packages, "two-brokers"))
        return {
            "datasource.url": self.database.url,
            "deployment.dir": packages,
            **({"refusal.hold": "PT3S"} if self.kept else {}),
            "connections": [
                {"name": "kafka", "transport": "kafka", "properties": [f"bootstrap.servers={self.kafka.bootstrap}"]},
                {"name": "amqp", "transport": "amqp", "url": self.rabbitmq.url},
            ],
        }

    # What is sent

    def place(self):
        self.kafka.kcat_produce("orders", [
            (order, json.dumps({"orderId": order, "item": "tea", "quantity": PARTS, "price": PRICE}))
            for order in self.orders])
        self.wait_status("SUSPENDED", len(self.orders), "the orders to wait for their payments")
        say("orders", f"{len(self.orders)} through Kafka; all wait for their payments")

    def pay(self, orders):
        with self.rabbitmq.connect() as amqp:
            amqp.publish_all("", "payments", [
                Message(json.dumps({"orderId": order, "part": part, "amount": PRICE}), message_id=f"{order}-{part}",
                        content_type="application/json")
                for part in range(1, PARTS + 1) for order in orders])

    def claim(self, on):
        """As another replica does that works at the order, and does not end."""
        claim = "'somebody else', now() + interval '1 h'" if on else "null, null"
        self.database.psql(f"update sutra.instance set (claim_owner, claim_at) = row({claim}) where id in (select instance_id "
                           f"from sutra.alias where name = 'order' and value = '{self.held}')")

    # What is seen

    def wait_status(self, status, count, what):
        def reached():
            self.look()
            return self.database.count(f"select count(*) from sutra.instance where status = '{status}'") == count

        wait_until(reached, 60, what)

    def look(self):
        self.most_kept = max(self.most_kept, self.database.count("select count(*) from sutra.inbox_message"))

    def cpu(self, end):
        """The share of a core that the replica takes until that time."""
        began, before = time.monotonic(), self.ticks()
        wait_until(lambda: time.monotonic() >= end, end - began + 5, "the measurement's end", interval=0.1)
        return (self.ticks() - before) / TICKS / (time.monotonic() - began)

    def ticks(self):
        with open(f"/proc/{self.engine.pid}/stat", encoding="ascii", errors="replace") as source:
            fields = source.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def count(self, channel, outcome):
        return int(self.engine.metric("sutra_deliveries_total", channel=channel, outcome=outcome))

    def redelivered(self):
        """What RabbitMQ counts; its statistics are seconds old, so whoever asks waits for those of all deliveries."""
        def statistics():
            request = urllib.request.Request(self.rabbitmq.management_url + "/api/queues/%2f/payments", headers={
                "Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
            with urllib.request.urlopen(request, timeout=10) as answer:
                found = json.load(answer).get("message_stats", {})
            return found if found.get("deliver_get", 0) >= PARTS * len(self.orders) else None

        found = wait_until(statistics, 40, "RabbitMQ's statistics")
        return found["deliver_get"], found.get("redeliver", 0)

    # The story

    def run(self):
        self.start()
        self.place()
        idle = self.cpu(time.monotonic() + QUIET_S)
        self.claim(True)
        began = time.monotonic()
        self.pay([self.held])
        wait_until(lambda: self.engine.metric("sutra_unsettled_deliveries", channel="payments") == PARTS, 20, "the hold")
        say("payments", f"{PARTS} of {self.held}, whose instance is busy elsewhere, then {PARTS * len(self.others)} of the others")
        self.pay(self.others)
        self.wait_status("COMPLETED", len(self.others), "the others to be paid")
        flowed = time.monotonic() - began
        say("others", f"{len(self.others)} orders paid while {self.held} was held, after {flowed:.1f} s")
        waiting = self.cpu(max(time.monotonic() + QUIET_S, began + HOLD_S))
        self.look()
        before = [reply["orderId"] for reply in self.replies()]
        held_s = time.monotonic() - began
        self.claim(False)
        self.wait_status("COMPLETED", len(self.orders), "the held order")
        say("held", f"{self.held} was given back after {held_s:.1f} s, and was paid")
        wait_until(lambda: self.database.count("select count(*) from sutra.outbox_entry") == 0, 20, "an empty outbox")
        self.judge(max(0, waiting - idle), before)

    def replies(self):
        return [record.json() for record in self.kafka.kcat_consume("order-replies")]

    def judge(self, more, before):
        replies = self.replies()
        with self.rabbitmq.connect() as amqp:
            receipts = [json.loads(message.body) for message in amqp.get_all("receipts")]
        delivered, redelivered = self.redelivered()
        counts = {name: self.count("orders", name) + self.count("payments", name) for name in ("duplicate", "rejected")}
        letters = self.database.count("select count(*) from sutra.dead_letter")
        rows = self.database.count("select count(*) from sutra.inbox_message")
        taken = self.count("orders", "received")
        code = self.engine.terminate()
        in_order = "".join(f"{part} " for part in range(1, PARTS + 1))
        amounts = {(order, part): part * PRICE for order in self.orders for part in range(1, PARTS + 1)}
        print(f"\n{'':44}{'seen':>10}  wanted")
        self.check("replies before the held order was given back", len(before), len(self.others))
        self.check("  of which its own", before.count(self.held), 0)
        self.check("replies to the shop, through Kafka", len(replies), len(self.orders))
        self.check("  to different orders", len({reply["orderId"] for reply in replies}), len(self.orders))
        self.check("  with all parts in order", sum(reply["parts"] == in_order for reply in replies), len(self.orders))
        self.check("receipts to the bank, through RabbitMQ", len(receipts), len(amounts))
        self.check("  with the right sum", sum(amounts.get((receipt["orderId"], receipt["part"])) == receipt["paid"]
                                               for receipt in receipts), len(amounts))
        self.check("records taken from Kafka", taken, len(self.orders))
        self.check("deliveries by RabbitMQ", delivered, len(amounts))
        self.check("  of which redelivered", redelivered, 0)
        self.check("returns that the queue counts", sum(reply["returns"] for reply in replies), 0)
        self.check("duplicates, rejected, dead letters", sum(counts.values()) + letters, 0)
        self.check("CPU while it waits, above idle", f"{100 * more:.2f} %", f"at most {100 * CPU_MOST:.0f} % of a core",
                   more <= CPU_MOST)
        self.check("messages that the database kept", self.most_kept, PARTS if self.kept else 0)
        self.check("  and still keeps", rows, 0)
        self.check("exit code of the replica", code, 0)

    def check(self, what, seen, wanted, fine=None):
        fine = seen == wanted if fine is None else fine
        print(f"{what:<44}{seen:>10}  {wanted}{'' if fine else '   <-- wrong'}", flush=True)
        if not fine:
            self.wrong.append(what)


def main():
    exit_on_signals()
    shop = Shop(int(os.environ.get("ORDERS", "200")), "--kept" in sys.argv[1:])
    try:
        shop.run()
    except (ServiceError, Unavailable) as error:
        print(shop.engine.tail() if shop.engine else "", file=sys.stderr)
        sys.exit(f"two-brokers: {error}")
    finally:
        shop.close()
    if shop.wrong:
        sys.exit(f"two-brokers: wrong: {'; '.join(shop.wrong)}")


if __name__ == "__main__":
    main()
