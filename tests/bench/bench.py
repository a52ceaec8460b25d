# SPDX-License-Identifier: Apache-2.0
"""What the benches share: the optimised driver, built out of tree, and a durable PostgreSQL with what a run costs it."""

import json
import os
import platform
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "services"))
sys.dont_write_bytecode = True
import postgresql  # noqa: E402

ENGINE = {
    "SUTRA_ENGINE_SHARDS": "256",
    "SUTRA_DATASOURCE_POOL_SIZE": "2",
    "SUTRA_BENCH_WINDOW": "1024",
}
SERVER = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "wal_compression": "off",
}
SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "max_wal_size",
         "checkpoint_timeout", "wal_level")
TABLES = ("instance", "wait", "alias", "timer", "inbox", "inbox_message", "early", "outbox_entry", "dead_letter")


def fail(text):
    print(f"{sys.argv[0]}: {text}", file=sys.stderr)
    sys.exit(1)


# --- the driver ------------------------------------------------------------------------------------------------------

def step(build, name, argv, cwd):
    """A step of the build, quiet unless it fails."""
    log = os.path.join(build, f"{name}.log")
    with open(log, "w", encoding="utf-8") as out:
        done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        with open(log, encoding="utf-8", errors="replace") as text:
            print("".join(text.readlines()[-40:]), file=sys.stderr)
        fail(f"{name} failed, see {log}")


def build_driver(programs=("tests/bench/driver",)):
    """Builds and returns the path of the driver; `programs` are make targets."""
    build = os.path.abspath(os.environ.get("SUTRA_BENCH_BUILD") or os.path.join(ROOT, "build-bench"))
    configure = os.path.join(ROOT, "configure")
    os.makedirs(build, exist_ok=True)
    if os.path.exists(os.path.join(ROOT, "config.status")) and build != ROOT:
        fail("the source tree itself is configured; run make distclean there first")
    if not os.path.exists(configure) or os.path.getmtime(configure) < os.path.getmtime(configure + ".ac"):
        step(build, "autogen", ["./autogen.sh"], ROOT)
    status = os.path.join(build, "config.status")
    if not os.path.exists(status) or os.path.getmtime(status) < os.path.getmtime(configure):
        step(build, "configure", [configure, "CFLAGS=-O2 -g"], build)
    step(build, "make", ["make", f"-j{os.cpu_count()}", *programs], build)
    return os.path.join(build, "tests", "bench", "driver")


class Driver:
    """Runs the driver with a package of this folder."""

    def __init__(self, path, server, package):
        self.path = path
        self.environment = {
            **ENGINE, **os.environ, **server.variables(),
            "SUTRA_BENCH_PACKAGE": os.path.join(ROOT, "tests", "bench", package),
            "PGDATABASE": "sutra",
        }

    def run(self, *arguments, timeout=120):
        try:
            done = subprocess.run([self.path, *map(str, arguments)], env=self.environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, timeout=timeout, check=False, text=True)
        except subprocess.TimeoutExpired:
            fail(f"driver {' '.join(map(str, arguments))} does not end")
        if done.returncode:
            fail(f"driver {' '.join(map(str, arguments))} ended with {done.returncode}")
        return json.loads(done.stdout) if done.stdout else None


# --- the server ------------------------------------------------------------------------------------------------------

def processor_seconds(pid):
    """User and system time of the server: of living processes, and of those that it has waited for."""
    ticks = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(entry) == pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Server:
    """Says what a run cost."""

    def __init__(self, server):
        self.server = server

    def empty(self):
        self.server.psql("truncate " + ", ".join("sutra." + table for table in TABLES))
        self.server.psql("vacuum analyze sutra.instance; vacuum analyze sutra.inbox")
        self.server.psql("checkpoint")

    def settle(self):
        """Waits until the sessions of the run before have ended."""
        # What the sessions of the run before have done is counted when they end.
        deadline = time.monotonic() + 10
        while self.value("select count(*) from pg_stat_activity where usename = 'sutra'") != "0":
            if time.monotonic() > deadline:
                fail("sessions of the run before do not end")
            time.sleep(0.05)

    def value(self, sql):
        return self.server.psql(sql)[0][0]

    def figures(self):
        commits, wal, fpi, image = self.server.psql(
            "select d.xact_commit, pg_current_wal_lsn() - '0/0', w.wal_fpi, w.wal_fpi * current_setting('block_size')::int "
            "from pg_stat_database d, pg_stat_wal w where d.datname = 'sutra'")[0]
        return {"commits": int(commits), "wal": int(wal), "fpi": int(fpi), "image": int(image),
                "cpu": processor_seconds(self.server.process.pid)}

    def measure(self, run):
        """Runs; the run's own figures and the server's."""
        self.settle()
        before = self.figures()
        result = run()
        time.sleep(0.2)  # an ended session's counters are there a moment later
        after = self.figures()
        result["server"] = {name: after[name] - before[name] for name in after}
        return result


def show(postgres, began):
    """Prints the machine and what makes the server durable, read back from it."""
    print(f"machine: {os.cpu_count()} cores, {platform.release()}, load {os.getloadavg()[0]:.1f} at the start; "
          f"built in {time.monotonic() - began:.0f} s")
    settings = dict(postgres.psql("select name, current_setting(name) from pg_settings where name in ("
                                  + ", ".join(f"'{name}'" for name in SHOWN) + ")"))
    print(f"PostgreSQL {postgres.version()}: " + ", ".join(f"{name} {settings[name]}" for name in SHOWN))
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        if settings[name] != "on":
            fail(f"{name} is {settings[name]}: these figures would not be durable")
