# SPDX-License-Identifier: Apache-2.0
"""The workload of the rings flow, faults and system, and the accounting of what became of it.

    saga = Saga(kafka, folder)                    # topics and groups of its own, packages in folder/packages
    engine = case.sutra({**saga.config(), **store(database)})
    orders = saga.orders(40)
    saga.send_orders(orders); saga.send_payments(orders)
    saga.wait_done(database, orders)
    saga.account(case, database, orders)          # nothing lost, nothing doubled, order kept

Two packages: the order saga of examples/, and `streams`, in which each instance takes the numbered items of one key one by
one and passes each on, so that an item that overtook another, or came twice, shows.
"""

import os
import random
import re
import shutil
import threading
import uuid

from harness import ROOT, KafkaClient, Record, libconfig, wait_until

EXAMPLE = os.path.join(ROOT, "examples", "quickstart", "package")

STREAMS = """<?xml version="1.0" encoding="UTF-8"?>
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:q="urn:sutra:q:1.0" id="Streams"
             targetNamespace="urn:sutra:tests:streams">
  <process id="Stream" isExecutable="true">
    <extensionElements><q:variables>
      <q:variable name="stream" type="string"/><q:variable name="last" type="integer"/>
      <q:variable name="number" type="integer"/><q:variable name="disorder" type="integer"/>
      <q:variable name="final" type="boolean"/>
    </q:variables></extensionElements>
    <startEvent id="Open"><extensionElements>
      <q:source channel="items" messageTypeValue="open"/>
      <q:alias name="stream" expression="payload.stream" unique="true"/></extensionElements>
      <messageEventDefinition/></startEvent>
    <sequenceFlow id="f1" sourceRef="Open" targetRef="Begin"/>
    <scriptTask id="Begin" scriptFormat="lua"><script>stream = payload.stream
last = 0
disorder = 0</script></scriptTask>
    <sequenceFlow id="f2" sourceRef="Begin" targetRef="Item"/>
    <intermediateCatchEvent id="Item"><extensionElements>
      <q:source channel="items" messageTypeValue="item"/>
      <q:alias name="stream" expression="payload.stream"/></extensionElements>
      <messageEventDefinition/></intermediateCatchEvent>
    <sequenceFlow id="f3" sourceRef="Item" targetRef="Take"/>
    <scriptTask id="Take" scriptFormat="lua"><script>number = payload.number
if number ~= last + 1 then disorder = disorder + 1 end
last = number
final = payload.final == true</script></scriptTask>
    <sequenceFlow id="f4" sourceRef="Take" targetRef="Pass"/>
    <sendTask id="Pass"><extensionElements>
      <q:send channel="passed" body="{stream = stream, number = number, disorder = disorder}"/></extensionElements></sendTask>
    <sequenceFlow id="f5" sourceRef="Pass" targetRef="More"/>
    <exclusiveGateway id="More" default="Again"/>
    <sequenceFlow id="Again" sourceRef="More" targetRef="Item"/>
    <sequenceFlow id="Final" sourceRef="More" targetRef="End"><conditionExpression>final</conditionExpression></sequenceFlow>
    <endEvent id="End"/>
  </process>
</definitions>
"""


def kafka_connection(bootstrap, **properties):
    """The configuration of the connection `kafka`; properties with "_" for ".". Sessions are short: deaths show soon."""
    lines = {
        "bootstrap.servers": bootstrap, "session.timeout.ms": "2000", "heartbeat.interval.ms": "300",
        "reconnect.backoff.max.ms": "500", "topic.metadata.refresh.interval.ms": "1000",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    return {"name": "kafka", "transport": "kafka", "properties": [f"{name}={value}" for name, value in lines.items()]}


def store(database):
    """A database, and the backstops of a death within seconds instead of minutes."""
    return {
        "datasource.url": database.url,
        "instance.claim-timeout": "PT2S", "instance.sweep-interval": "PT0.5S",
        "outbox.claim-timeout": "PT2S", "outbox.tick-interval": "PT0.2S", "outbox.retry.base-delay": "PT0.1S",
        "outbox.retry.max-delay": "PT1S", "refusal.backoff.max": "PT1S",
        "lease.ttl": "PT3S", "lease.poll": "PT0.5S",
    }


def write_package(folder, channels, bpmn, module="shop", version="1.0.0", tenant="default"):
    """A package folder. `channels` are dicts; `bpmn` maps file names to texts. Returns the folder."""
    os.makedirs(os.path.join(folder, "bpmn"), exist_ok=True)
    for name, settings in (
        ("package.conf", {"tenant": tenant, "module": module, "version": version}), ("channels.conf", {"channels": channels}),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(libconfig(settings))
    for name, text in bpmn.items():
        with open(os.path.join(folder, "bpmn", name), "w", encoding="utf-8") as out:
            out.write(text)
    return folder


def order_saga():
    with open(os.path.join(EXAMPLE, "bpmn", "order.bpmn"), encoding="utf-8") as source:
        return source.read()


class Order:
    def __init__(self, number, chance):
        self.id = f"o-{number}-{chance.randrange(1 << 32):08x}"
        self.quantity = 1 + chance.randrange(9)
        self.price = 1 + chance.randrange(40)
        self.total = self.quantity * self.price
        self.paid = self.total - 1 if number % 7 == 3 else self.total

    def record(self):
        return Record(self.id, '{"orderId":"%s","item":"tea","quantity":%d,"price":%d}' % (self.id, self.quantity, self.price))

    def payment(self):
        return Record(self.id, '{"orderId":"%s","amount":%d}' % (self.id, self.paid))

    def reply(self):
        status = "REJECTED" if self.paid < self.total else "CONFIRMED"
        return {"orderId": self.id, "status": status, "total": self.total, "paid": self.paid}


class Saga:
    """Topics, packages and records of one test.

    topics    name of the channel → name of its topic; of Kafka's, and made here unless create=False
    """

    def __init__(self, kafka, folder, partitions=4, hold="PT30S", seed=None, create=True, version="1.0.0", settings=None):
        self.kafka = kafka
        self.mark = uuid.uuid4().hex[:8]
        self.hold = hold
        self.seed = random.randrange(1 << 30) if seed is None else seed
        self.chance = random.Random(self.seed)
        self.packages = os.path.join(folder, "packages")
        self.settings = settings or {}
        self.made = 0
        self.topics = {name: f"{name}-{self.mark}" for name in
                       ("orders", "payments", "stock", "order-replies", "items", "passed")}
        self.groups = {name: f"g-{name}-{self.mark}" for name in ("orders", "payments", "items")}
        if create:
            for topic in self.topics.values():
                kafka.create_topic(topic, partitions)
        self.write(version)

    def channel(self, name, **more):
        inbound = {"group": self.groups[name]} if name in self.groups else {"direction": "outbound"}
        return {"name": name, "transport": "kafka", "bind": self.topics[name], **inbound, **more, **self.settings.get(name, {})}

    def write(self, version="1.0.0"):
        """Writes both packages; a package of another version replaces the one before."""
        shutil.rmtree(self.packages, ignore_errors=True)
        self.saga_package = write_package(
            os.path.join(self.packages, "order-saga"),
            [self.channel("orders"), self.channel("payments", unmatched={"hold": self.hold, "then": "dead-letter"}),
             self.channel("stock", key="orderId"), self.channel("order-replies", key="orderId")],
            {"order.bpmn": order_saga()}, "order-saga", version,
        )
        self.streams_package = write_package(
            os.path.join(self.packages, "streams"), [self.channel("items"), self.channel("passed", key="stream")],
            {"streams.bpmn": STREAMS}, "streams", version,
        )

    def config(self, bootstrap=None, **properties):
        return {
            "deployment.dir": self.packages,
            "connections": [kafka_connection(bootstrap or self.kafka.bootstrap, **properties)],
        }

    # Orders

    def orders(self, count):
        made = [Order(self.made + number, self.chance) for number in range(count)]
        self.made += count
        return made

    def produce(self, name, records):
        """An idempotent producer: what a broker's crash makes it send again must not count as two events."""
        self.kafka.produce(self.topics[name], records, timeout=90, enable_idempotence="true")

    def send_orders(self, orders):
        self.produce("orders", [order.record() for order in orders])

    def send_payments(self, orders):
        self.produce("payments", [order.payment() for order in orders])

    # Streams

    def open_streams(self, streams):
        """Opens them by messages with keys of their own, so that items may have come before."""
        self.produce("items", [Record("open-" + stream, '{"stream":"%s"}' % stream, [("message-type", "open")])
                               for stream in streams])

    def send_items(self, streams, first, count, final=False, opening=True):
        """Items first … first+count-1 of each stream, those of one stream in order; before item 1 the stream's opening."""
        records = []
        for number in range(first, first + count):
            for stream in streams:
                if number == 1 and opening:
                    records.append(Record(stream, '{"stream":"%s"}' % stream, [("message-type", "open")]))
                last = "true" if final and number == first + count - 1 else "false"
                records.append(Record(stream, '{"stream":"%s","number":%d,"final":%s}' % (stream, number, last),
                                      [("message-type", "item")]))
        self.produce("items", records)

    # Waits

    def lag(self):
        return sum(self.kafka.lag(self.topics[name], group) for name, group in self.groups.items())

    def wait_parked(self, database, count, timeout=30):
        wait_until(lambda: statuses(database).get("SUSPENDED", 0) == count, timeout, f"{count} instances to park")

    def wait_done(self, database, count, timeout=60):
        """Until that many instances are COMPLETED, the outbox is empty and the groups have committed everything."""
        wait_until(lambda: statuses(database).get("COMPLETED", 0) == count, timeout, f"{count} instances to complete")
        wait_until(lambda: database.count("select count(*) from sutra.outbox_entry") == 0, 20, "an empty outbox")
        wait_until(lambda: self.lag() == 0, 20, "the groups to commit their ends")

    # Accounting

    def account(self, case, database, orders, streams=0, items=0):
        """What must hold when everything was sent and has settled: the guarantees, counted in rows and records."""
        case.assertEqual({"COMPLETED": len(orders) + streams}, statuses(database))
        leftovers = {
            name: database.count(f"select count(*) from sutra.{what}")
            for name, what in (("outbox", "outbox_entry"), ("waits", "wait"), ("dead letters", "dead_letter"),
                               ("claims", "instance where claim_owner is not null"))
        }
        case.assertEqual({"outbox": 0, "waits": 0, "dead letters": 0, "claims": 0}, leftovers)
        # Each event had its effect under its own inbox key.
        inbox = 2 * len(orders) + (streams + streams * items)
        case.assertEqual(inbox, database.count("select count(*) from sutra.inbox"))
        self.account_orders(case, orders)
        if streams:
            self.account_streams(case, streams, items)
        for name, group in self.groups.items():
            for partition, line in self.kafka.offsets(self.topics[name], group).items():
                if line["high"] > line["low"]:
                    case.assertEqual(line["high"], line["committed"], f"committed offset of {name}/{partition}")

    def account_orders(self, case, orders):
        replies = distinct(case, self.kafka.consume(self.topics["order-replies"]))
        stock = distinct(case, self.kafka.consume(self.topics["stock"]))
        case.assertEqual(sorted(order.id for order in orders), sorted(record.key for record in replies))
        case.assertEqual({order.id: order.reply() for order in orders}, {r.key: r.json() for r in replies})
        case.assertEqual(sorted(order.id for order in orders), sorted(record.key for record in stock))

    def account_streams(self, case, streams, items):
        seen = {}
        for record in distinct(case, self.kafka.consume(self.topics["passed"])):
            body = record.json()
            case.assertEqual(0, body["disorder"], f"stream {record.key} at {body['number']}")
            seen.setdefault(record.key, []).append((record.partition, record.offset, body["number"]))
        case.assertEqual(streams, len(seen))
        for stream, passed in seen.items():
            case.assertEqual(list(range(1, items + 1)), [number for _, _, number in sorted(passed)], f"stream {stream}")


class Load(threading.Thread):
    """Orders, their payments a portion later in another order, and items of some streams, until finish()."""

    def __init__(self, saga, streams=8, portion=20, pause=0.1, most=100000):
        super().__init__(daemon=True)
        self.saga, self.portion, self.pause, self.most = saga, portion, pause, most
        self.streams = [f"s{number}" for number in range(streams)]
        self.orders, self.unpaid, self.items = [], [], 0
        self.over, self.error = threading.Event(), None

    def pay(self, orders):
        self.saga.chance.shuffle(orders)
        self.saga.send_payments(orders)

    def run(self):
        try:
            while not self.over.is_set() and len(self.orders) < self.most:
                orders = self.saga.orders(self.portion)
                self.saga.send_orders(orders)
                self.orders += orders
                self.items += 1
                self.saga.send_items(self.streams, self.items, 1)
                self.pay(self.unpaid)
                self.unpaid = orders[:]
                self.over.wait(self.pause)
            self.items += 1
            self.saga.send_items(self.streams, self.items, 1, final=True)
            self.pay(self.unpaid)
        except Exception as error:  # finish() raises it in the test
            self.error = error

    def finish(self, case, database, timeout=90):
        """Stops sending, waits until everything has settled, and accounts for it."""
        self.over.set()
        self.join(120)
        if self.error:
            raise self.error
        self.saga.wait_done(database, len(self.orders) + len(self.streams), timeout)
        self.saga.account(case, database, self.orders, len(self.streams), self.items)


def statuses(database):
    return {status: int(count) for status, count in
            database.psql("select status, count(*) from sutra.instance group by status")}


def distinct(case, records):
    """The first record of each outbox key, and proof that what else came under the key is the same."""
    first = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        key = record.header("sutra-outbox-key")
        case.assertTrue(key and re.fullmatch(r"[0-9a-f-]{36}", key), f"{record} has no outbox key")
        before = first.setdefault(key, record)
        case.assertEqual((before.key, before.value, before.partition), (record.key, record.value, record.partition))
    return list(first.values())


def dead_letters(database):
    """code → count."""
    return {code: int(count) for code, count in
            database.psql("select code, count(*) from sutra.dead_letter group by code")}



def dev(case, saga, database=None, config=None, packages=None, **start):
    """`sutra dev` with the saga's packages and its in-process broker, which becomes the saga's Kafka."""
    folder = case.folder("dev")
    address = os.path.join(folder, "kafka")
    packages = [saga.saga_package, saga.streams_package] if packages is None else packages
    settings = {**(store(database) if database else {}), **(config or {})}
    engine = case.sutra(settings, start=False, command=("dev", "--kafka-file", address, *packages), name="dev")
    engine.start(**start)
    with open(address, encoding="ascii") as source:
        saga.kafka = KafkaClient(source.read().strip())
    return engine
