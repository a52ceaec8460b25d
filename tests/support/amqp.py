# SPDX-License-Identifier: Apache-2.0
"""A small AMQP 0-9-1 client for tests: declares, publishes with confirms, gets. One channel, blocking, standard library only.

    with AmqpClient("127.0.0.1", port) as amqp:
        amqp.declare("payments", arguments={"x-queue-type": "quorum"})
        amqp.publish("", "payments", Message(b"{}", message_id="m-1", headers={"n": 1}))
        message = amqp.get("payments")          # None: the queue is empty; taken off the queue unless ack=False

An error of the channel (a missing queue) raises AmqpError and opens the channel again.
"""

import socket
import struct

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8

# Names of the properties of basic, from the highest flag down; "s" a short string, "o" an octet, "t" a timestamp.
PROPERTIES = (
    ("content_type", "s"), ("content_encoding", "s"), ("headers", "F"), ("delivery_mode", "o"), ("priority", "o"),
    ("correlation_id", "s"), ("reply_to", "s"), ("expiration", "s"), ("message_id", "s"), ("timestamp", "t"), ("type", "s"),
    ("user_id", "s"), ("app_id", "s"), ("cluster_id", "s"),
)


class AmqpError(Exception):
    """The broker closed the channel or the connection: code and text."""

    def __init__(self, code, text):
        super().__init__(f"{code} {text}")
        self.code = code


class Message:
    """body is bytes (or str, sent as UTF-8); properties by name, headers a dict. Of a got one redelivered and count too."""

    def __init__(self, body=b"", headers=None, **properties):
        self.body = body.encode() if isinstance(body, str) else body
        self.headers = headers or {}
        self.properties = properties
        self.tag = self.redelivered = self.exchange = self.routing_key = self.left = None

    def __getattr__(self, name):
        if name.startswith("_") or name not in dict(PROPERTIES):
            raise AttributeError(name)
        return self.properties.get(name)

    def text(self):
        return self.body.decode()

    def __repr__(self):
        return f"Message({self.body[:200]!r}, {self.headers!r}, {self.properties!r})"


# --- encoding --------------------------------------------------------------------------------------------------------


def short(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">B", len(data)) + data


def long(data):
    return struct.pack(">I", len(data)) + data


def field(value):
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t" + struct.pack(">B", value)
    if isinstance(value, int):
        return b"l" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + long(value.encode())
    if isinstance(value, (bytes, bytearray)):
        return b"x" + long(bytes(value))
    if isinstance(value, dict):
        return b"F" + table(value)
    return b"A" + long(b"".join(field(item) for item in value))


def table(values):
    return long(b"".join(short(name) + field(value) for name, value in values.items()))


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def short(self):
        return self.take(self.number("B")).decode("utf-8", "surrogateescape")

    def field(self):
        kind = chr(self.number("B"))
        numbers = {"b": "b", "B": "B", "s": "h", "u": "H", "I": "i", "i": "I", "l": "q", "L": "q", "f": "f", "d": "d", "T": "Q"}
        if kind in numbers:
            return self.number(numbers[kind])
        if kind == "t":
            return bool(self.number("B"))
        if kind == "S":
            return self.take(self.number("I")).decode("utf-8", "surrogateescape")
        if kind == "x":
            return self.take(self.number("I"))
        if kind == "F":
            return self.table()
        if kind == "A":
            inner, items = Reader(self.take(self.number("I"))), []
            while inner.at < len(inner.data):
                items.append(inner.field())
            return items
        if kind == "D":
            places, digits = self.number("B"), self.number("I")
            return digits / 10**places
        return None

    def table(self):
        inner, values = Reader(self.take(self.number("I"))), {}
        while inner.at < len(inner.data):
            name = inner.short()
            values[name] = inner.field()
        return values


class AmqpClient:
    def __init__(self, host, port, user="guest", password="guest", vhost="/", timeout=30):
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.buffer = b""
        self.returned = []
        self.published = 0
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect((10, 10))
        plain = long(f"\0{user}\0{password}".encode())
        self._send(0, 10, 11, table({"product": "test"}) + short("PLAIN") + plain + short("en_US"))
        tune = self._expect((10, 30))
        self.frame_max = (tune.number("H"), tune.number("I"))[1] or 131072
        self._send(0, 10, 31, struct.pack(">HIH", 2047, self.frame_max, 0))
        self._send(0, 10, 40, short(vhost) + b"\0\0")
        self._expect((10, 41))
        self._open()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def close(self):
        self.socket.close()

    # Frames

    def _frame(self, kind, channel, data):
        self.socket.sendall(struct.pack(">BHI", kind, channel, len(data)) + data + b"\xce")

    def _send(self, channel, class_id, method, data=b""):
        self._frame(METHOD, channel, struct.pack(">HH", class_id, method) + data)

    def _fill(self, count):
        while len(self.buffer) < count:
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise AmqpError(0, "the broker closed the connection")
            self.buffer += chunk

    def _read(self):
        while True:
            self._fill(7)
            kind, _channel, size = struct.unpack(">BHI", self.buffer[:7])
            self._fill(size + 8)
            data, self.buffer = self.buffer[7 : 7 + size], self.buffer[size + 8 :]
            if kind != HEARTBEAT:
                return kind, Reader(data)

    def _content(self):
        _, reader = self._read()
        reader.take(4)
        size, flags = reader.number("Q"), reader.number("H")
        message = Message()
        for index, (name, kind) in enumerate(PROPERTIES):
            if flags & (1 << (15 - index)):
                value = {"s": reader.short, "F": reader.table, "o": lambda: reader.number("B"),
                         "t": lambda: reader.number("Q")}[kind]()
                if name == "headers":
                    message.headers = value
                else:
                    message.properties[name] = value
        parts = []
        while size:
            _, body = self._read()
            parts.append(body.data)
            size -= len(body.data)
        message.body = b"".join(parts)
        return message

    def _expect(self, *methods):
        """The arguments of the next method, which must be one of these; with several also which it was."""
        while True:
            _, reader = self._read()
            method = (reader.number("H"), reader.number("H"))
            if method in methods:
                return (method, reader) if len(methods) > 1 else reader
            if method == (60, 50):
                reader.take(2)
                text = reader.short()
                self.returned.append((text, self._content()))
            elif method in ((20, 40), (10, 50)):
                code, text = reader.number("H"), reader.short()
                if method == (20, 40):
                    self._send(1, 20, 41)
                    self._open()
                raise AmqpError(code, text)

    def _open(self):
        self._send(1, 20, 10, short(""))
        self._expect((20, 11))
        self._send(1, 85, 10, b"\0")
        self._expect((85, 11))

    # What tests do

    def declare(self, queue, durable=True, arguments=None, passive=False):
        """Returns how many messages are ready."""
        flags = passive | (durable << 1)
        self._send(1, 50, 10, struct.pack(">H", 0) + short(queue) + struct.pack(">B", flags) + table(arguments or {}))
        answer = self._expect((50, 11))
        answer.short()
        return answer.number("I")

    def ready(self, queue):
        return self.declare(queue, passive=True)

    def delete(self, queue):
        self._send(1, 50, 40, struct.pack(">H", 0) + short(queue) + b"\0")
        return self._expect((50, 41)).number("I")

    def exchange(self, name, kind="topic"):
        self._send(1, 40, 10, struct.pack(">H", 0) + short(name) + short(kind) + b"\x02" + table({}))
        self._expect((40, 11))

    def bind(self, queue, exchange, key):
        self._send(1, 50, 20, struct.pack(">H", 0) + short(queue) + short(exchange) + short(key) + b"\0" + table({}))
        self._expect((50, 21))

    def publish(self, exchange, key, message):
        """Persistent, mandatory; returns when the broker has confirmed it. An unroutable one raises."""
        self.publish_all(exchange, key, [message])

    def publish_all(self, exchange, key, messages):
        returned = len(self.returned)
        for message in messages:
            self._publish(exchange, key, message)
        confirmed, goal = self.published, self.published + len(messages)
        self.published = goal
        seen = 0
        while seen < len(messages):
            method, answer = self._expect((60, 80), (60, 120))
            tag, multiple = answer.number("Q"), answer.number("B") & 1
            if method == (60, 120):
                raise AmqpError(0, "the broker did not take a message")
            seen = max(seen, tag - confirmed) if multiple else seen + 1
        if len(self.returned) > returned:
            raise AmqpError(312, self.returned[-1][0])

    def _publish(self, exchange, key, message):
        values = {"delivery_mode": 2, **message.properties}
        if message.headers:
            values["headers"] = message.headers
        flags, data = 0, b""
        for index, (name, kind) in enumerate(PROPERTIES):
            if values.get(name) is not None:
                flags |= 1 << (15 - index)
                data += {"s": short, "F": table, "o": lambda value: struct.pack(">B", value),
                         "t": lambda value: struct.pack(">Q", value)}[kind](values[name])
        self._send(1, 60, 40, struct.pack(">H", 0) + short(exchange) + short(key) + b"\x01")
        self._frame(HEADER, 1, struct.pack(">HHQH", 60, 0, len(message.body), flags) + data)
        step = self.frame_max - 8
        for at in range(0, len(message.body), step):
            self._frame(BODY, 1, message.body[at : at + step])

    def get(self, queue, ack=True):
        self._send(1, 60, 70, struct.pack(">H", 0) + short(queue) + struct.pack(">B", ack))
        method, answer = self._expect((60, 71), (60, 72))
        if method == (60, 72):
            return None
        tag, redelivered = answer.number("Q"), answer.number("B")
        exchange, key, left = answer.short(), answer.short(), answer.number("I")
        message = self._content()
        message.tag, message.redelivered, message.exchange, message.routing_key = tag, bool(redelivered), exchange, key
        message.left = left
        return message

    def consume(self, queue, count):
        """So many messages by a consumer, as the engine gets them. They go back when the connection is closed.

        In order then, whereas each get() is a consumer of its own to a quorum queue, which returns those in the order of
        their names.
        """
        self._send(1, 60, 10, struct.pack(">IHB", 0, count, 0))
        self._expect((60, 11))
        self._send(1, 60, 20, struct.pack(">H", 0) + short(queue) + short("test") + b"\0" + table({}))
        self._expect((60, 21))
        messages = []
        while len(messages) < count:
            delivery = self._expect((60, 60))
            delivery.short()
            tag, redelivered = delivery.number("Q"), delivery.number("B")
            exchange, key = delivery.short(), delivery.short()
            message = self._content()
            message.tag, message.redelivered, message.exchange, message.routing_key = tag, bool(redelivered), exchange, key
            messages.append(message)
        return messages

    def get_all(self, queue):
        return list(iter(lambda: self.get(queue), None))
