#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A throw-away Apache Kafka broker: one KRaft process, run from Maven's jars by the machine's JDK.

    tests/services/kafka.py setup                      # once per machine, about half a minute; other commands do it
    tests/services/kafka.py run -- sh -c 'kcat -b $KAFKA_BOOTSTRAP -L'
    tests/services/kafka.py start --dir /tmp/kafka; …; tests/services/kafka.py remove --dir /tmp/kafka

Variable: KAFKA_BOOTSTRAP.

The setup fills a cache folder (${SUTRA_TEST_CACHE:-${XDG_CACHE_HOME:-~/.cache}/sutra-tests}/kafka/<key>):

    libs/       the jars that kafka/pom.xml names
    golden/     a formatted data folder in which the internal topics exist; it holds no port and no path,
                so that copies of it run anywhere, several at once
    kafka.jsa   the JVM's class data archive, which halves the start
    complete    written last: what the rest must look like

and a broker then starts in a little over a second from a copy of golden.  The archive is bound to the JVM and to
the jars' paths and times, so <key> is a digest of all that, and a folder that does not match its `complete` is made
again.  Several runs at once are kept apart by a lock.
"""

import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "support"))
from process import (  # noqa: E402
    Process, ServiceError, State, Unavailable, cache_folder, command_line, exit_on_signals, free_port, record_version, remove, run,
    scratch, wait_until,
)

SOURCE = os.path.join(TESTS, "services", "kafka")
CLUSTER_ID = "c3V0cmEtdGVzdHMtMDAwMQ"
READY = "Kafka Server started"
# Serial collector and first-tier compiler: the quickest start; the log says little but when the server is up.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
JVM = [
    "-Xms64m", "-XX:+UseSerialGC", QUICK_COMPILER, "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
]
QUIET_ARCHIVE = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


class Installation:
    """The cache folder; ready() sets it up when it must."""

    def __init__(self):
        for tool in ("java", "mvn", "kcat"):
            if not shutil.which(tool):
                raise Unavailable(f"no {tool} (packages default-jdk-headless, maven, kcat)")
        self.root = cache_folder("kafka")
        self.java = run(["java", "-version"]).stderr
        self.folder = os.path.join(self.root, self._key())

    def _key(self):
        digest = hashlib.sha256()
        for name in ("pom.xml", "server.properties"):
            with open(os.path.join(SOURCE, name), "rb") as source:
                digest.update(source.read())
        digest.update("\n".join([self.root, self.java, *JVM]).encode())
        return digest.hexdigest()[:16]

    def path(self, name):
        return os.path.join(self.folder, name)

    def class_path(self):
        """Sorted and absolute: the archive is only used with the very class path it was made with."""
        return ":".join(sorted(glob.glob(self.path("libs") + "/*.jar")))

    def version(self):
        match = re.search(r"/kafka_[\d.]+-([\d.]+)\.jar", self.class_path())
        return match.group(1) if match else "unknown"

    def ready(self):
        """Makes sure that the folder is complete, and returns self."""
        os.makedirs(self.root, exist_ok=True)
        with open(os.path.join(self.root, "lock"), "w", encoding="ascii") as lock:
            # Not inherited by the JVMs (Python closes descriptors on exec), which would hold it for their lifetime.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._complete():
                self._setup()
            os.utime(self.path("complete"))
        return self

    def _contents(self):
        """Sizes and times of everything the archive depends on, and the archive itself."""
        files = sorted(glob.glob(self.path("libs") + "/*.jar")) + [self.path("kafka.jsa")]
        golden = self.path("golden") + "/meta.properties"
        return {path: [os.stat(path).st_size, int(os.stat(path).st_mtime)] for path in files + [golden]}

    def _complete(self):
        try:
            with open(self.path("complete"), encoding="ascii") as source:
                return json.load(source) == self._contents()
        except (OSError, ValueError):
            return False

    def _setup(self):
        self._forget_old()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        print(f"kafka: setting up {self.folder}", file=sys.stderr, flush=True)
        self._download()
        self._train()
        with open(self.path("complete"), "w", encoding="ascii") as out:
            json.dump(self._contents(), out)

    def _forget_old(self):
        """Removes folders of other versions that nobody used for a month."""
        for stamp in glob.glob(self.root + "/*/complete"):
            if time.time() - os.stat(stamp).st_mtime > 30 * 86400:
                shutil.rmtree(os.path.dirname(stamp), ignore_errors=True)

    def _download(self):
        command = [
            "mvn", "-q", "-B", "-f", os.path.join(SOURCE, "pom.xml"), "dependency:copy-dependencies",
            "-DincludeScope=runtime", "-DoutputDirectory=" + self.path("libs"),
        ]
        for attempt in (1, 2, 3):
            done = run(command, timeout=300, check=False, cwd=self.folder)
            if done.returncode == 0:
                return
            print(f"kafka: mvn failed (attempt {attempt} of 3)", file=sys.stderr, flush=True)
        raise Unavailable("Maven could not fetch Kafka's jars:\n" + (done.stdout + done.stderr)[-3000:])

    def _train(self):
        """One run that leaves the archive, and a data folder with the group and transaction topics in it."""
        folder = self.path("train")
        os.makedirs(folder)
        port, properties = free_port(), folder + "/server.properties"
        write_properties(properties, folder + "/data", port, free_port(), {})
        java = ["java", *JVM, "-cp", self.class_path()]
        run([*java, "kafka.tools.StorageTool", "format", "-c", properties, "-t", CLUSTER_ID], timeout=60, cwd=folder)
        process = Process("kafka", folder + "/log")
        process.start(
            ["java", "-XX:ArchiveClassesAtExit=" + self.path("kafka.jsa"), *QUIET_ARCHIVE, *java[1:], "-Xmx256m",
             "kafka.Kafka", properties],
            cwd=folder,
        )
        broker = f"127.0.0.1:{port}"
        wait_until(lambda: process.must_live() and READY in process.log_text(), 90, "Kafka's first start")
        # A group member and a transactional producer make the internal topics; that the topic is missing does not
        # matter, and kcat says so with exit code 1.
        warm = [["-G", "warm", "missing"], ["-P", "-t", "missing", "-X", "transactional.id=warm"]]
        for arguments in warm:
            subprocess.run(
                ["timeout", "15", "kcat", "-b", broker, *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )
        process.terminate(60)
        os.rename(folder + "/data", self.path("golden"))
        shutil.rmtree(folder)


def write_properties(path, data, port, controller_port, more):
    """server.properties with the ports, the data folder and the test's own settings, which win."""
    with open(os.path.join(SOURCE, "server.properties"), encoding="utf-8") as source:
        text = source.read()
    addresses = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": data,
    }
    with open(path, "w", encoding="utf-8") as out:
        out.write(text + "".join(f"{name}={value}\n" for name, value in {**addresses, **more}.items()))


class Kafka:
    """One broker. start() copies the golden data on first use and returns when clients are served.

    properties   more server.properties, e.g. {"message.max.bytes": 20 << 20}
    heap         the JVM's heap limit; 256m serves hundreds of thousands of messages, payloads of 100 MB want more
    fast         for figures: with the JVM's second compiler, which takes its time to be at its best
    folder       where it lives; a scratch folder by default, which close() removes

    bootstrap    "127.0.0.1:PORT", the same over restarts
    start(), stop() (2 s), kill() (-9), restart() (kill and start, 3 s), freeze(), thaw().
    """

    def __init__(self, properties=None, heap="256m", folder=None, fast=False):
        self.installation = Installation().ready()
        self.scratch = folder is None
        self.folder = folder or scratch("kafka")
        self.data = os.path.join(self.folder, "data")
        self.state = State(self.folder)
        known = self.state.load()
        self.port = known.get("port") or free_port()
        self.controller_port = known.get("controller_port") or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.properties = dict(properties or {})
        self.heap = heap
        self.jvm = [option for option in JVM if option != QUICK_COMPILER] if fast else JVM
        self.process = Process("kafka", os.path.join(self.folder, "log"))
        if known.get("pid"):
            self.process.attach(known["pid"])

    def start(self, detach=False):
        if not os.path.isdir(self.data):
            shutil.copytree(self.installation.path("golden"), self.data)
        properties = os.path.join(self.folder, "server.properties")
        write_properties(properties, self.data, self.port, self.controller_port, self.properties)
        self.process.start(
            ["java", "-XX:SharedArchiveFile=" + self.installation.path("kafka.jsa"), *QUIET_ARCHIVE, *self.jvm,
             "-Xmx" + self.heap, "-cp", self.installation.class_path(), "kafka.Kafka", properties],
            cwd=self.folder, detach=detach,
        )
        # Not failed by the word ERROR in the log: a restart may print a harmless stack of a controller that moves.
        wait_until(lambda: self.process.must_live() and READY in self.process.log_text(), 90, "Kafka to start")
        self.state.save({"port": self.port, "controller_port": self.controller_port, "pid": self.process.pid})
        record_version("Apache Kafka " + self.version())
        return self

    def version(self):
        return self.installation.version()

    def stop(self):
        self.process.terminate(60)

    def kill(self):
        self.process.kill()

    def restart(self):
        """kill -9, and back on the same port and data."""
        self.kill()
        return self.start()

    def freeze(self):
        self.process.freeze()

    def thaw(self):
        self.process.thaw()

    def close(self):
        """Kills it and removes its scratch folder. Safe to call twice."""
        self.kill()
        if self.scratch:
            remove(self.folder)

    def tail(self):
        return self.process.log_tail()

    def variables(self):
        return {"KAFKA_BOOTSTRAP": self.bootstrap}

    def __enter__(self):
        return self.start()

    def __exit__(self, *_error):
        self.close()


def _options(parser):
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a server.properties setting")
    parser.add_argument("--heap", default="256m", help="the JVM's heap limit")


def _make(args, folder):
    return Kafka(dict(item.split("=", 1) for item in args.set), args.heap, folder)


if __name__ == "__main__":
    if sys.argv[1:] == ["setup"]:
        exit_on_signals()
        try:
            print(Installation().ready().folder)
        except (ServiceError, Unavailable) as error:
            sys.exit(f"kafka.py: {error}")
    else:
        command_line(_make, __doc__.splitlines()[0], _options)
