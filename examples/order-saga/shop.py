#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shop, its warehouse, its bank and its carrier. examples/order-saga/run calls it.

Each order has a story: what the others say to it, and what it must say to them. They are told all at once; then what every
order has sent is compared with its story. kcat talks to the broker, the harness of the tests starts and stops things.
"""

import collections
import json
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "tests")
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "services")]
import kafka as kafka_service  # noqa: E402
from harness import KafkaClient, Postgres, Sutra, exit_on_signals, sutra, wait_until  # noqa: E402
from process import ServiceError, Unavailable, run  # noqa: E402

PACKAGE = os.path.join(FOLDER, "package")
INTO = ("orders", "cancellations", "stock-answers", "payments", "pick-ups", "deliveries", "returns")
OUT_OF = ("order-replies", "stock-requests", "refunds", "parcels")
PRICES = {"tea": 4, "pot": 20, "cups": 12, "unicorn": 1000, "ghost": 500}
WITHIN = "PT2S"  # for those who do not answer


class Kafka(kafka_service.Kafka, KafkaClient):
    """A real broker and its kcat."""

    def make(self, topic):
        """By asking for it, as the broker here makes what it is asked for."""
        wait_until(lambda: f'topic "{topic}" with 4 partitions' in run(["kcat", "-b", self.bootstrap, "-L", "-t", topic]).stdout,
                   30, f"the topic {topic}", interval=0.1)


class Story:
    """One kind of order: what it is of, what it goes through, and how it must end."""

    def __init__(self, name, path, skus=("tea", "pot", "cups"), pays=1.0, early=False, cancels=False, slow=False, arrives="deliveries"):
        self.name, self.path, self.skus = name, path, skus
        self.pays, self.early, self.cancels, self.slow, self.arrives = pays, early, cancels, slow, arrives

    def total(self):
        return sum(PRICES[sku] * (number + 1) for number, sku in enumerate(self.skus))

    def order(self, order):
        within = {"answerWithin": self.unanswered(), "payWithin": not self.pays, "pickUpWithin": self.slow}
        return {"orderId": order, "customer": f"customer of {order}", **{name: WITHIN for name, soon in within.items() if soon},
                "lines": [{"sku": sku, "quantity": number + 1, "price": PRICES[sku]} for number, sku in enumerate(self.skus)]}

    def sold_out(self):
        return "unicorn" in self.skus

    def unanswered(self):
        return "ghost" in self.skus

    def reserved(self):
        return not self.sold_out() and not self.unanswered()

    def ships(self):
        return self.reserved() and not self.cancels and self.pays >= 1

    def amount(self):
        return int(self.total() * self.pays)

    def told(self, order):
        """What the others must have been told of the order: by topic, sorted texts."""
        told = {"stock-requests": [{"orderId": order, "line": f"{order}/{sku}", "sku": sku, "reserve": number + 1}
                                   for number, sku in enumerate(self.skus)],
                "refunds": [], "parcels": []}
        reply = {"orderId": order, "state": self.state(), "total": self.total()}
        if self.state() == "DELIVERED":
            reply.update(reserved=list(self.skus), tracking=f"T-{order}")
        else:
            told["stock-requests"].append({"orderId": order, "release": list(self.skus)})
        if self.ships():
            told["parcels"].append({"parcel": f"{order}-1", "address": f"customer of {order}",
                                    "contents": [f"{number + 1} {sku}" for number, sku in enumerate(self.skus)]})
        if self.slow:
            told["parcels"].append({"parcel": f"{order}-1", "reminder": True})
        if self.state() in ("RETURNED", "UNDERPAID"):
            told["refunds"].append({"orderId": order, "amount": self.amount()})
        told["order-replies"] = [reply]
        return {topic: sorted(json.dumps(item, sort_keys=True) for item in items) for topic, items in told.items()}

    def state(self):
        if self.sold_out():
            return "SOLD-OUT"
        if self.unanswered():
            return "NO-ANSWER"
        if self.cancels:
            return "CANCELLED"
        if not self.pays:
            return "EXPIRED"
        if self.pays < 1:
            return "UNDERPAID"
        return "DELIVERED" if self.arrives == "deliveries" else "RETURNED"


STORIES = (
    Story("delivered", "every line in stock, paid, picked up, delivered"),
    Story("paid-first", "the payment overtook the order", early=True),
    Story("one-line", "an order of a single line", skus=("tea",)),
    Story("sold-out", "one line of three is not to be had: the others are given back", skus=("tea", "unicorn", "cups")),
    Story("unanswered", "the warehouse says nothing of one line for two seconds", skus=("tea", "ghost", "cups")),
    Story("cancelled", "the customer changed her mind before she paid", cancels=True),
    Story("underpaid", "paid too little: the money goes back", pays=0.5),
    Story("forgotten", "nobody paid within two seconds", pays=0),
    Story("reminded", "the carrier came when reminded, after two seconds", slow=True),
    Story("returned", "paid and shipped, and came back: refunded", arrives="returns"),
)


def say(what, text):
    print(f"{what:<16}{text}", flush=True)


class Shop:
    def __init__(self, count, real):
        self.orders = {f"{story.name}-{number}": story for number in range(count) for story in STORIES}
        self.real = real
        self.kafka = self.engine = None
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
        if self.real:
            self.start_real()
        else:
            address = Sutra(command=("dev",), name="order-saga")
            file = os.path.join(address.folder, "kafka")
            address.command = ["dev", "--kafka-file", file, PACKAGE]
            self.engine = self.service(address)
            with open(file, encoding="ascii") as source:
                self.kafka = KafkaClient(source.read().strip())
        say("replica", f"process {self.engine.pid}, Kafka protocol on {self.kafka.bootstrap}, "
            f"admin on http://127.0.0.1:{self.engine.port}")

    def start_real(self):
        postgres = self.service(Postgres(mode="durable"))
        database = postgres.main
        sutra("migrate", env={"SUTRA_DATASOURCE_URL": database.url, "SUTRA_DATASOURCE_MIGRATE_URL": database.migrate_url})
        self.kafka = self.service(Kafka({"auto.create.topics.enable": "true", "num.partitions": "4"}))
        say("services", f"PostgreSQL {postgres.version()}, Kafka {self.kafka.version()}")
        for topic in INTO + OUT_OF:
            self.kafka.make(topic)
        packages = os.path.join(postgres.folder, "packages")
        os.makedirs(packages)
        os.symlink(PACKAGE, os.path.join(packages, "order-saga"))
        self.engine = self.service(Sutra({
            "datasource.url": database.url, "deployment.dir": packages,
            "connections": [{"name": "kafka", "transport": "kafka", "properties": [f"bootstrap.servers={self.kafka.bootstrap}"]}],
        }))

    # What the others say

    def send(self, topic, items):
        """Pairs of a key and what is said."""
        self.kafka.kcat_produce(topic, [(key, json.dumps(item)) for key, item in items])

    def of(self, holds):
        return [(order, story) for order, story in self.orders.items() if holds(story)]

    def pay(self, orders):
        self.send("payments", [(order, {"orderId": order, "amount": story.amount()}) for order, story in orders])

    def received(self, topic):
        return [record.json() for record in self.kafka.kcat_consume(topic)]

    def await_messages(self, topic, count, what):
        """As many as there must be, of those for which `what` holds."""
        found = []

        def there():
            found[:] = [item for item in self.received(topic) if what(item)]
            return len(found) >= count

        wait_until(there, 60, f"{count} messages on {topic}", interval=0.2)
        return found

    # The story

    def run(self):
        self.start()
        self.pay(self.of(lambda story: story.early))
        self.send("orders", [(order, story.order(order)) for order, story in self.orders.items()])
        say("orders", f"{len(self.orders)}: {len(self.orders) // len(STORIES)} of each of {len(STORIES)} kinds")

        lines = sum(len(story.skus) for story in self.orders.values())
        asked = self.await_messages("stock-requests", lines, lambda item: "reserve" in item)
        asked.sort(key=lambda item: item["sku"] == "unicorn")
        answered = [item for item in asked if item["sku"] != "ghost"]
        self.send("stock-answers", [(item["orderId"], {"line": item["line"], "reserved": item["sku"] != "unicorn"})
                                    for item in answered])
        say("warehouse", f"asked for {lines} lines, had {sum(item['sku'] != 'unicorn' for item in answered)}, "
            f"said nothing of {lines - len(answered)}")

        self.send("cancellations", [(order, {"orderId": order}) for order, _ in self.of(lambda story: story.cancels)])
        self.pay(self.of(lambda story: story.reserved() and story.pays and not story.cancels and not story.early))

        ships, slow = len(self.of(Story.ships)), len(self.of(lambda story: story.slow))
        parcels = [item["parcel"] for item in self.await_messages("parcels", ships, lambda item: "reminder" not in item)]
        self.pick_up(parcel for parcel in parcels if not self.orders[parcel.removesuffix("-1")].slow)
        self.pick_up(item["parcel"] for item in self.await_messages("parcels", slow, lambda item: "reminder" in item))
        for topic in ("deliveries", "returns"):
            self.send(topic, [(f"{order}-1", {"parcel": f"{order}-1"})
                              for order, story in self.of(lambda story: story.ships() and story.arrives == topic)])
        say("carrier", f"picked {len(parcels)} parcels up, {slow} when reminded")
        self.await_messages("order-replies", len(self.orders), lambda item: True)
        self.judge()

    def pick_up(self, parcels):
        self.send("pick-ups", [(parcel, {"parcel": parcel, "tracking": f"T-{parcel.removesuffix('-1')}"}) for parcel in parcels])

    def judge(self):
        told = {topic: collections.defaultdict(list) for topic in OUT_OF}
        for topic in OUT_OF:
            for item in self.received(topic):
                order = item.get("orderId") or item["parcel"].removesuffix("-1")
                told[topic][order].append(json.dumps(item, sort_keys=True))
        letters = self.engine.get("/admin/dead-letters")[1]["deadLetters"]
        code = self.engine.terminate()
        print(f"\n{'kind':<14}{'orders':>7}  {'ended as':<12}{'stock':>6}{'refunds':>9}{'parcels':>9}   what happened")
        for story in STORIES:
            self.judge_story(story, told)
        strangers = sum(len(items) for topic in OUT_OF for order, items in told[topic].items() if order not in self.orders)
        for what, seen in (("messages of orders that nobody placed", strangers), ("dead letters", len(letters)),
                           ("exit code of the replica", code)):
            if seen:
                self.wrong.append(f"{what}: {seen}")
        print(f"\n{len(self.orders)} orders, {sum(len(told['order-replies'][order]) for order in self.orders)} replies, "
              f"{len(self.wrong)} wrong", flush=True)

    def judge_story(self, story, told):
        orders = [order for order, other in self.orders.items() if other is story]
        wrong = []
        for order in orders:
            for topic, wanted in story.told(order).items():
                seen = sorted(told[topic][order])
                if seen != wanted:
                    wrong.append(f"{order}: on {topic} {seen} and not {wanted}")
        counts = {topic: sum(len(told[topic][order]) for order in orders) for topic in OUT_OF}
        print(f"{story.name:<14}{len(orders):>7}  {story.state():<12}{counts['stock-requests']:>6}{counts['refunds']:>9}"
              f"{counts['parcels']:>9}   {story.path}{'   <-- wrong' if wrong else ''}", flush=True)
        self.wrong += wrong


def main():
    exit_on_signals()
    shop = Shop(int(os.environ.get("ORDERS", "5")), "--real" in sys.argv[1:])
    try:
        shop.run()
    except (ServiceError, Unavailable) as error:
        print(shop.engine.tail() if shop.engine else "", file=sys.stderr)
        sys.exit(f"order-saga: {error}")
    finally:
        shop.close()
    if shop.wrong:
        sys.exit("order-saga: wrong: " + "\n".join(shop.wrong[:10]))


if __name__ == "__main__":
    main()
