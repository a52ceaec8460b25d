# SPDX-License-Identifier: Apache-2.0
"""What tests of the running engine are written with.

    import os, sys
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
    import harness
    from harness import Record, wait_until

    class Orders(harness.Case):
        timeout = 60                                    # seconds for each test of this class; 120 by default

        def test_reply(self):
            pg = self.postgres()                        # a server of this test file, a fresh database of this test
            kafka = self.kafka()                        # the broker of this test file
            orders = kafka.topic("orders", partitions=4)    # a fresh topic, its name made unique
            self.migrate(pg)
            engine = self.sutra({"datasource.url": pg.url, "deployment.dir": …})
            kafka.produce(orders, [Record("o-1", '{"id":1}', [("ce_id", "e-1")])])
            wait_until(lambda: pg.count("select count(*) from sutra.instance") == 1, 20, "the instance")
            engine.kill(); engine.start()
            wait_until(lambda: kafka.lag(orders, "sutra") == 0, 20, "the group to catch up")
            self.assertEqual(0, engine.terminate())

Everything a Case hands out is stopped and removed when its test (or for shared servers its file) ends, also on
failure; a failing test prints the last lines of the logs of everything it used.  Without a needed service a test is
skipped, or fails when the run was asked to --require that service.

Waiting: wait_until(condition, seconds, what).  Never sleep.
"""

import json
import os
import re
import sys
import threading
import unittest
import urllib.error
import urllib.request
import uuid

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
sys.path.insert(0, os.path.join(TESTS, "services"))

from process import (  # noqa: E402,F401 (re-exported)
    SANITIZER_REPORT, TIME_FACTOR, Process, ServiceError, Unavailable, exit_on_signals, free_port, record_version,
    remove, run, scratch, wait_until,
)
import kafka as kafka_service  # noqa: E402
import postgresql as postgresql_service  # noqa: E402
import rabbitmq as rabbitmq_service  # noqa: E402
from amqp import AmqpClient  # noqa: E402

# The names that --require takes. A new service is added here and gets its method in Case.
SERVICES = ("kafka", "postgresql", "rabbitmq", *(f"rabbitmq-{era}" for era in rabbitmq_service.ERAS))

Database = postgresql_service.Database
Postgres = postgresql_service.Postgres


def build_dir():
    """The build tree under test: SUTRA_BUILD_DIR, or else build-tests in the source tree."""
    return os.path.abspath(os.environ.get("SUTRA_BUILD_DIR") or os.path.join(ROOT, "build-tests"))


def built(name, variable=None):
    """The path of a built program; `variable` names an environment variable that overrides it."""
    if variable and os.environ.get(variable):
        return os.environ[variable]
    for place in ("", "src", "tests/support", "tests/sim", "tests/bench"):
        path = os.path.join(build_dir(), place, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise ServiceError(f"{name} is not built in {build_dir()} (make {name}; or set SUTRA_BUILD_DIR)")


# --- configuration files ---------------------------------------------------------------------------------------------


def libconfig(settings):
    """Writes a dict as a libconfig document.

    A dotted key opens groups, so {"datasource.url": "…"} and {"datasource": {"url": "…"}} are the same; a dict is a
    group, a list of plain values an array, a list of dicts a list.
    """
    tree = {}
    for key, value in settings.items():
        at = tree
        *groups, last = key.split(".")
        for group in groups:
            at = at.setdefault(group, {})
        if isinstance(value, dict) and isinstance(at.get(last), dict):
            at[last].update(value)
        else:
            at[last] = value
    return "".join(f"{key} = {_libconfig_value(value)};\n" for key, value in tree.items())


def _libconfig_value(value):
    if isinstance(value, dict):
        return "{ " + " ".join(f"{key} = {_libconfig_value(item)};" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        plain = all(isinstance(item, (str, int, float)) for item in value)
        items = ", ".join(_libconfig_value(item) for item in value)
        return f"[ {items} ]" if plain else f"( {items} )"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}L" if abs(value) >= 1 << 31 else str(value)
    if isinstance(value, float):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


# --- Kafka -----------------------------------------------------------------------------------------------------------


class Record:
    """A Kafka record. key and value are str, bytes or None (null); headers a list of (name, str, bytes or None).

    Consumed records also have topic, partition, offset and timestamp; their key, value and header values are str where
    the bytes are UTF-8 and bytes where they are not.
    """

    def __init__(self, key=None, value=None, headers=(), topic=None, partition=None, offset=None, timestamp=None):
        self.key = key
        self.value = value
        self.headers = list(headers.items() if isinstance(headers, dict) else headers)
        self.topic, self.partition, self.offset, self.timestamp = topic, partition, offset, timestamp

    def header(self, name):
        """The value of the first header of that name, None when absent (or null)."""
        return next((value for key, value in self.headers if key == name), None)

    def json(self):
        return json.loads(self.value)

    def __repr__(self):
        return f"Record({self.key!r}, {self.value!r}, {self.headers!r}, {self.topic}/{self.partition}/{self.offset})"


def _hex(value):
    if value is None:
        return "\\N"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex()


def _field(value):
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


class KafkaClient:
    """What a test does with any Kafka-protocol broker, real or the engine's built-in one, given its "host:port".

    The methods named kcat_* go through kcat, a client that is not ours; the others through tests/support/kafkatool,
    which carries nulls, any bytes, and headers of each record's own.
    """

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def tool(self, *arguments, stdin=None, timeout=30, check=True):
        """Runs kafkatool and returns its JSON lines."""
        command = [built("kafkatool"), "-b", self.bootstrap, "-t", str(int(timeout * TIME_FACTOR * 1000))]
        done = run([*command, *map(str, arguments)], stdin=stdin, timeout=timeout + 15, check=check)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def create_topic(self, name, partitions=1, **config):
        """Makes a topic; settings with "_" for "." (retention_ms=1000). Returns the name."""
        settings = [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
        self.tool("create", name, partitions, *settings)
        return name

    def topic(self, name, partitions=1, **config):
        """Makes a topic with a unique name that starts with `name`, and returns that."""
        return self.create_topic(f"{name}-{uuid.uuid4().hex[:8]}", partitions, **config)

    def delete_topic(self, name):
        self.tool("delete", name)

    def produce(self, topic, records, partition=None, timeout=30, **properties):
        """Produces Records and returns when all are acknowledged; properties with "_" for "."."""
        lines = []
        for record in records:
            headers = ",".join(
                name if value is None else f"{name}={_hex(value)}" for name, value in record.headers
            )
            lines.append(f"{_hex(record.key)}\t{headers}\t{_hex(record.value)}\n")
        options = ["-x"] + ([] if partition is None else ["-p", partition])
        for name, value in properties.items():
            options += ["-X", f"{name.replace('_', '.')}={value}"]
        return self.tool(*options, "produce", topic, stdin="".join(lines), timeout=timeout)[0]["delivered"]

    def produce_bench(self, topic, count, size=200, keys=100, timeout=60, **properties):
        """Produces many records as fast as it goes; returns delivered, failed, milliseconds, per_second."""
        options = []
        for name, value in properties.items():
            options += ["-X", f"{name.replace('_', '.')}={value}"]
        return self.tool(*options, "produce-bench", topic, count, size, keys, timeout=timeout)[0]

    def consume(self, topic, count=None, partition=None, timeout=30, **properties):
        """Reads from the beginning: `count` Records, or all there are now. Joins no group."""
        options = ([] if count is None else ["-n", count]) + ([] if partition is None else ["-p", partition])
        for name, value in properties.items():
            options += ["-X", f"{name.replace('_', '.')}={value}"]
        return [
            Record(
                _field(line["key"]), _field(line["payload"]),
                [(_field(name), _field(value)) for name, value in line["headers"]],
                line["topic"], line["partition"], line["offset"], line["timestamp"],
            )
            for line in self.tool(*options, "consume", topic, timeout=timeout)
        ]

    def count(self, topic):
        """How many records the topic holds (for topics without transactions and compaction)."""
        return sum(line["high"] - line["low"] for line in self.tool("offsets", topic))

    def offsets(self, topic, group):
        """Per partition a dict of low, high, committed (None: never) and lag."""
        return {line.pop("partition"): line for line in self.tool("-g", group, "offsets", topic)}

    def committed(self, topic, group):
        """Per partition the group's committed offset, None where it has none."""
        return {partition: line["committed"] for partition, line in self.offsets(topic, group).items()}

    def lag(self, topic, group):
        """Records the group has yet to commit, over all partitions."""
        return sum(line["lag"] for line in self.offsets(topic, group).values())

    def kcat_produce(self, topic, records, headers=(), partition=None):
        """Produces (key, value) pairs of text without newlines; `headers` go on every record."""
        arguments = [item for name, value in headers for item in ("-H", f"{name}={value}")]
        if partition is not None:
            arguments += ["-p", str(partition)]
        lines = "".join(f"{key}\x1f{value}\n" for key, value in records)
        self._kcat("-P", "-t", topic, "-K", "\x1f", *arguments, stdin=lines)

    def kcat_consume(self, topic):
        """All records there are now, from the beginning to the end of every partition."""
        found = []
        for line in self._kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J").splitlines():
            item = json.loads(line)
            names = item.get("headers") or []
            found.append(Record(
                item.get("key"), item.get("payload"), list(zip(names[::2], names[1::2])),
                item["topic"], item["partition"], item["offset"], item.get("ts"),
            ))
        return found

    def kcat_count(self, topic):
        return len(self.kcat_consume(topic))

    def _kcat(self, *arguments, stdin=None):
        return run(["kcat", "-b", self.bootstrap, *arguments], stdin=stdin, timeout=60).stdout


class Kafka(kafka_service.Kafka, KafkaClient):
    """A real broker and its client in one; see services/kafka.py and KafkaClient."""

    def start(self, detach=False):
        super().start(detach)
        # The offsets' coordinator loads after the broker serves; a test's first question should not meet that.
        self.tool("-g", "warm", "offsets", "__consumer_offsets")
        return self


class RabbitMQ(rabbitmq_service.RabbitMQ):
    """A real broker; connect() gives an AmqpClient (support/amqp.py), whose end is the caller's or the test's."""

    def connect(self):
        return AmqpClient("127.0.0.1", self.port)


# --- a network that can be cut ---------------------------------------------------------------------------------------


class Proxy:
    """A TCP forwarder on 127.0.0.1:port to `target` ("host:port"): cut() breaks and refuses, heal() lets through.

    For PostgreSQL and AMQP.  A Kafka client learns the broker's own address from it, so for Kafka set the broker's
    advertised.listeners to the proxy's address.
    """

    def __init__(self, target):
        import socketserver

        host, port = target.rsplit(":", 1)
        proxy = self
        self.target = (host, int(port))
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._open = True
        self._sockets = set()
        self._lock = threading.Lock()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def _serve(self, client):
        import socket

        if not self._open:
            return
        try:
            server = socket.create_connection(self.target, timeout=10)
        except OSError:
            return
        server.settimeout(None)
        with self._lock:
            self._sockets |= {client, server}
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        with self._lock:
            self._sockets -= {client, server}
        server.close()

    @staticmethod
    def _pump(source, sink):
        import socket

        try:
            while chunk := source.recv(65536):
                sink.sendall(chunk)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Breaks every connection, and new ones as soon as they are made."""
        import socket

        with self._lock:
            self._open = False
            for end in self._sockets:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def heal(self):
        self._open = True

    def close(self):
        self.cut()
        self._server.shutdown()
        self._server.server_close()

    def tail(self):
        return ""


# --- fault points ---------------------------------------------------------------------------------------------------


def fault_points():
    """The names of the engine's fault points, as src/base/fault.h lists them."""
    with open(os.path.join(ROOT, "src", "base", "fault.h"), encoding="utf-8") as source:
        table = re.search(r"#define FAULT_POINTS\(X\)((?:.*\\\n)*.*\n)", source.read()).group(1)
    return re.findall(r"X\((\w+)\)", table)


# --- the engine ------------------------------------------------------------------------------------------------------


class Sutra:
    """The engine under test as a process: `sutra serve` (or `dev`) with a configuration of its own.

    config    a dict (see libconfig()) or the text of sutra.conf; `admin.listen` is set to a free port of 127.0.0.1,
              `admin.auth.key-ref` and `log.format = "json"` too, unless given
    env       more environment; every other SUTRA_* of the caller is kept from the engine
    command   ("serve",) or ("dev", PACKAGE…); the harness adds --config and --port-file
    wrapper   a command in front, such as ["valgrind", "-q"]

    start() returns once the admin listener answers and, with ready=True, once readiness is UP.  The log goes to a
    file over all starts of this object: log_text(), events(), wait_log().  After a sanitizer's report in the log every
    stop raises.
    """

    KEY = "test-admin-key"

    def __init__(self, config=None, env=None, command=("serve",), wrapper=(), name="sutra", folder=None):
        self.scratch = folder is None
        self.folder = folder or scratch(name)
        self.binary = built("sutra", "SUTRA_BINARY")
        self.command = list(command)
        self.wrapper = list(wrapper)
        self.config_path = os.path.join(self.folder, "sutra.conf")
        self.port_file = os.path.join(self.folder, "port")
        self.port = None
        self.process = Process(name, os.path.join(self.folder, "log"))
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("SUTRA_")}
        self.env.update(SUTRA_TEST_ADMIN_KEY=self.KEY, **(env or {}))
        self.configure(config or {})

    def configure(self, config):
        """Replaces the configuration; it counts from the next start."""
        if isinstance(config, dict):
            defaults = {
                "admin.listen": "127.0.0.1:0",
                "admin.auth.key-ref": "env:SUTRA_TEST_ADMIN_KEY",
                "log.format": "json",
            }
            config = libconfig({**defaults, **config})
        with open(self.config_path, "w", encoding="utf-8") as out:
            out.write(config)

    def start(self, ready=True, timeout=30, env=None, fault=None):
        """Starts it; `env` and the armed fault points ("commit_after=kill@2") are for this start only."""
        self.launch(env, fault)
        try:
            self.port = wait_until(self._announced, timeout, f"{self.process.name} to announce its admin port")
            if ready:
                self.wait_ready(timeout)
        except ServiceError as error:
            text = self.process.log_tail()
            raise ServiceError(str(error) if text in str(error) else f"{error}\n{text}") from None
        return self

    def launch(self, env=None, fault=None):
        """Starts it and waits for nothing: for configurations that must be refused, followed by wait()."""
        if os.path.exists(self.port_file):
            os.remove(self.port_file)
        self.port = None
        self.process.start(
            [*self.wrapper, self.binary, self.command[0], "--config", self.config_path, "--port-file", self.port_file,
             *self.command[1:]],
            env={**self.env, **(env or {}), **({"SUTRA_FAULT": fault} if fault else {})}, cwd=self.folder,
        )

    def _announced(self):
        """The port from the port file once it is whole, or from the line `listening on 127.0.0.1:PORT`."""
        self.process.must_live()
        try:
            with open(self.port_file, encoding="ascii") as source:
                text = source.read()
            if text.endswith("\n"):
                return int(text)
        except OSError:
            pass
        line = re.search(r"listening on 127\.0\.0\.1:(\d+)", self.process.log_text())
        return int(line.group(1)) if line else None

    def wait_ready(self, timeout=30):
        """Waits for 200 from /sutra/health/ready; returns its JSON."""

        def up():
            self.process.must_live()
            status, body = self.get("/sutra/health/ready")
            return body if status == 200 else False

        return wait_until(up, timeout, f"{self.process.name} to be ready")

    # HTTP

    def request(self, method, path, body=None, key=KEY, timeout=10):
        """(status, JSON or text); status 0 when nobody answers. key=None leaves the key header out."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["X-Api-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        ask = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(ask, timeout=timeout * TIME_FACTOR) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def metric(self, name, **labels):
        """The sum of the samples of a metric that carry these labels; 0 when there is none."""
        total = 0.0
        for line in str(self.get("/metrics")[1]).splitlines():
            match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)", line)
            if match and match.group(1) == name:
                found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""))
                if all(found.get(label) == str(value) for label, value in labels.items()):
                    total += float(match.group(3))
        return total

    # Log

    def log_text(self, whole=True):
        """The log of all starts, or of the latest one."""
        return self.process.log_text(whole)

    def events(self, **fields):
        """The JSON lines of the log that have these fields, e.g. events(stage="commit", level="error")."""
        found = []
        for line in self.log_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and all(event.get(name) == value for name, value in fields.items()):
                found.append(event)
        return found

    def wait_log(self, pattern, timeout=20):
        """Waits for a line of the latest start that matches; returns the match."""

        def look():
            match = re.search(pattern, self.process.log_text())
            return match or (not self.process.must_live())

        return wait_until(look, timeout, f"{self.process.name} to log {pattern!r}")

    def fault_hits(self):
        """The fault points that fired over all starts, as a list of (point, "kill" | "delay" | "fail")."""
        return re.findall(r"^fault: (\w+) (\w+)", self.log_text(), re.MULTILINE)

    # End

    def alive(self):
        return self.process.alive()

    @property
    def pid(self):
        return self.process.pid

    def wait(self, timeout=30):
        """Waits for it to end by itself; returns the exit code, negative for a signal."""
        code = self.process.wait(timeout)
        self._check_sanitizers()
        return code

    def terminate(self, timeout=40):
        """SIGTERM and its exit code."""
        code = self.process.terminate(timeout)
        self._check_sanitizers()
        return code

    def kill(self):
        """kill -9; returns when it is gone."""
        self.process.kill()
        self._check_sanitizers()

    def restart(self, how="kill", **start):
        """kill() or terminate(), and start() again on the same configuration."""
        getattr(self, how)()
        return self.start(**start)

    def send_signal(self, number):
        self.process.send_signal(number)

    def freeze(self):
        self.process.freeze()

    def thaw(self):
        self.process.thaw()

    def close(self):
        """Kills it and removes its folder. Safe to call twice."""
        self.process.kill()
        try:
            self._check_sanitizers()
        finally:
            if self.scratch:
                remove(self.folder)

    def _check_sanitizers(self):
        match = SANITIZER_REPORT.search(self.log_text())
        if match:
            report = self.log_text()[match.start() :][:6000]
            raise ServiceError(f"{self.process.name}: a sanitizer reported:\n{report}")

    def tail(self):
        return self.process.log_tail()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_error):
        self.close()


def sutra(*arguments, check=True, stdin=None, env=None, timeout=60, cwd=None):
    """Runs a subcommand to its end (`sutra("lint", folder)`) and returns the CompletedProcess."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SUTRA_")}
    return run(
        [built("sutra", "SUTRA_BINARY"), *map(str, arguments)],
        check=check, stdin=stdin, timeout=timeout, cwd=cwd, env={**clean, **(env or {})},
    )


# --- test cases ------------------------------------------------------------------------------------------------------


class _Shared:
    """Servers of a test file: started at the first request, ended with the interpreter."""

    services = {}

    @classmethod
    def get(cls, name, start):
        service = cls.services.get(name)
        if service is None:
            service = cls.services[name] = start()
        elif not service.process.alive():
            service.start()
        return service


class Case(unittest.TestCase):
    """Base of all tests with services.

    postgres()   a fresh Database on the file's shared server
    kafka()      the file's shared broker, with topics of the tests' own (topic())
    rabbitmq()   the file's shared RabbitMQ; queues with names of the tests' own; era="4.3" for one of another era
    own=True or any argument gives a server of the test's own, for tests that change or hurt it
    sutra(…)     an engine, started; ended with the test
    use(thing)   anything with close() and tail(): closed at the test's end, its log shown on failure
    """

    timeout = 120

    def run(self, result=None):
        self._tails = []
        return super().run(result)

    def doCleanups(self):
        """After the cleanups, and before anyone hears of the test's end: the logs, if it did not pass."""
        done = super().doCleanups()
        if self._outcome is not None and not self._outcome.success:
            for text in filter(None, self._tails):
                print(text, file=sys.stderr)
        return done

    def use(self, thing):
        def end():
            self._tails.append(thing.tail())
            thing.close()

        self.addCleanup(end)
        return thing

    def _service(self, name, start, own):
        """Starts what the test asks for; a machine that cannot run it skips the test, or fails it when required."""
        try:
            if own:
                return self.use(start()).start()
            service = _Shared.get(name, lambda: start().start())
            self.addCleanup(lambda: self._tails.append(service.tail()))
            return service
        except Unavailable as missing:
            self._missing(name, missing)

    def _missing(self, name, why):
        if name in os.environ.get("SUTRA_TEST_REQUIRE", "").split(","):
            self.fail(f"{name} is required: {why}")
        self.skipTest(f"{name}: {why}")

    def needs(self, *names):
        """For tests of what starts servers by itself: these could be started here."""
        installed = {"kafka": kafka_service.Installation, "postgresql": postgresql_service.binaries,
                     "rabbitmq": rabbitmq_service.Installation}
        for name in names:
            try:
                installed[name]()
            except Unavailable as missing:
                self._missing(name, missing)

    def postgres(self, own=False, **options):
        """A new Database on the shared server; on a server of its own (Postgres's options) it is `sutra`.

        The server is .server (kill(), restart(), drop_connections(), settings …).
        """
        if own or options:
            return self._service("postgresql", lambda: Postgres(**options), True).main
        server = self._service("postgresql", Postgres, False)
        return server.create_database(f"t{uuid.uuid4().hex[:12]}")

    def kafka(self, own=False, **options):
        return self._service("kafka", lambda: Kafka(**options), own or bool(options))

    def rabbitmq(self, own=False, era=None, **options):
        name = f"rabbitmq-{era}" if era else "rabbitmq"
        return self._service(name, lambda: RabbitMQ(era=era, **options), own or bool(options))

    def proxy(self, target):
        return self.use(Proxy(target))

    def sutra(self, config=None, start=True, ready=True, env=None, **options):
        """A Sutra of this test, started unless start=False."""
        engine = self.use(Sutra(config, env=env, **options))
        return engine.start(ready=ready) if start else engine

    def migrate(self, database):
        """`sutra migrate` on a Database."""
        environment = {"SUTRA_DATASOURCE_URL": database.url, "SUTRA_DATASOURCE_MIGRATE_URL": database.migrate_url}
        return sutra("migrate", env=environment)

    def folder(self, prefix="test"):
        """A scratch folder that ends with the test."""
        path = scratch(prefix)
        self.addCleanup(remove, path)
        return path
