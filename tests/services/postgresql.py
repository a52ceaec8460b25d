#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A throw-away PostgreSQL from the distribution's packages, on a free port and a Unix socket.

    tests/services/postgresql.py run -- psql -c 'select 1'
    tests/services/postgresql.py start --dir /tmp/pg --mode durable; …; tests/services/postgresql.py remove --dir /tmp/pg

Variables: SUTRA_DATASOURCE_URL (the engine's role), SUTRA_DATASOURCE_MIGRATE_URL (the schema's owner),
PGHOST, PGPORT, PGUSER, PGDATABASE (the superuser, for psql).

Roles: `sutra_owner` owns the database and may create roles; `sutra` is what the engine connects as, NOINHERIT,
neither owner nor superuser.  Connections are trusted: the server listens on 127.0.0.1 and lives for a test.
PostgreSQL refuses to run as root, so root starts it as `postgres`, or else `nobody`.
"""

import csv
import glob
import io
import os
import pwd
import re
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from process import (  # noqa: E402
    Process, ServiceError, State, Unavailable, command_line, free_port, record_version, remove, run, scratch, wait_until,
)

# fast: survives a crash of the server but not of the machine, which no test needs; durable: as in production.
MODES = {
    "fast": {"fsync": "off", "full_page_writes": "off", "wal_level": "minimal", "max_wal_senders": "0"},
    "durable": {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"},
}
COMMON = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
    "log_line_prefix": "'%m [%p] %u@%d '",
    "log_lock_waits": "on",
    "restart_after_crash": "on",
}


def binaries():
    """The folder with the newest installed initdb; raises Unavailable when there is none."""
    found = [os.path.dirname(path) for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    found += [os.path.dirname(path) for path in glob.glob("/usr/pgsql-*/bin/initdb")]
    found += [folder for folder in os.environ.get("PATH", "").split(":") if os.path.exists(folder + "/initdb")]
    if not found:
        raise Unavailable("no PostgreSQL server (package postgresql)")
    return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path)] or [0])


def server_user():
    """The pwd entry to run the server as, None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise Unavailable("root cannot run PostgreSQL, and there is no user postgres or nobody")


class Database:
    """One database of a server.

    url, migrate_url   what `datasource.url` and `datasource.migrate-url` take
    """

    def __init__(self, server, name):
        self.server = server
        self.name = name
        self.url = f"postgresql://sutra@127.0.0.1:{server.port}/{name}"
        self.migrate_url = f"postgresql://sutra_owner@127.0.0.1:{server.port}/{name}"

    def psql(self, sql, user="postgres"):
        """Runs SQL and returns the rows of all its statements as tuples of str, None for null."""
        return self.server.psql(sql, database=self.name, user=user)

    def value(self, sql, user="postgres"):
        """The first column of the only row, as str or None."""
        rows = self.psql(sql, user)
        if len(rows) != 1:
            raise ServiceError(f"{len(rows)} rows where one was expected: {sql}")
        return rows[0][0]

    def count(self, sql, user="postgres"):
        return int(self.value(sql, user))


class Postgres:
    """A server with its data; start() makes the cluster, the roles and the database `sutra` on first use.

    mode       "fast" (fsync off) or "durable"
    settings   more postgresql.conf settings, name to value as written in that file
    folder     where it lives; a scratch folder by default, which close() removes

    start(), stop() (fast shutdown), kill() (-9 of the server and every backend), restart(), freeze(), thaw().
    All keep port and data.
    """

    def __init__(self, mode="fast", settings=None, folder=None):
        self.bin = binaries()
        self.user = server_user()
        self.scratch = folder is None
        self.folder = folder or scratch("pg")
        self.data = os.path.join(self.folder, "data")
        self.state = State(self.folder)
        known = self.state.load()
        self.port = known.get("port") or free_port()
        self.sockets = known.get("sockets") or self._socket_folder()
        self.settings = {**COMMON, **MODES[mode], **(settings or {})}
        self.process = Process("postgresql", os.path.join(self.folder, "log"), self.user)
        if known.get("pid"):
            self.process.attach(known["pid"])
        self.main = Database(self, "sutra")
        self.url, self.migrate_url = self.main.url, self.main.migrate_url

    def _socket_folder(self):
        """In our folder, unless that would exceed what a socket address holds (107 bytes)."""
        path = os.path.join(self.folder, "s")
        if len(path) < 85:
            return path
        self._short = tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp")
        return self._short.name

    def start(self, detach=False):
        fresh = not os.path.exists(os.path.join(self.data, "PG_VERSION"))
        if fresh:
            self._initialise()
        self._configure()
        self.process.start(
            [os.path.join(self.bin, "postgres"), "-D", self.data], env=self._environment(), cwd=self.folder, detach=detach
        )
        wait_until(self._ready, 60, "PostgreSQL to accept connections")
        self.state.save({"port": self.port, "sockets": self.sockets, "pid": self.process.pid})
        if fresh:
            self._roles()
        record_version("PostgreSQL " + self.version())
        return self

    def _initialise(self):
        os.makedirs(self.folder, exist_ok=True)
        for path in (self.data, self.sockets):
            os.makedirs(path, exist_ok=True)
            if self.user:
                os.chown(path, self.user.pw_uid, self.user.pw_gid)
        os.chmod(self.data, 0o700)
        os.chmod(self.sockets, 0o755)
        run(
            [os.path.join(self.bin, "initdb"), "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
             "--locale=C", "--no-sync"],
            env=self._environment(), cwd=self.folder, user=self.user, timeout=120,
        )

    def _configure(self):
        settings = {**self.settings, "port": str(self.port), "unix_socket_directories": f"'{self.sockets}'"}
        path = os.path.join(self.data, "postgresql.auto.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write("".join(f"{name} = {value}\n" for name, value in settings.items()))
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def _environment(self):
        """No PG* variables of the caller, no locale of the caller."""
        return {"PATH": self.bin + ":/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

    def _ready(self):
        self.process.must_live()
        probe = run(
            [os.path.join(self.bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False, timeout=20
        )
        return probe.returncode == 0

    def _roles(self):
        self.psql(
            "create role sutra_owner login createrole;"
            "create role sutra login noinherit;"
            + ("grant sutra to sutra_owner with admin option;" if self.major() >= 16 else ""),
            database="postgres",
        )
        self.create_database("sutra")

    def create_database(self, name):
        """A new empty database owned by sutra_owner: the cheap way (tens of ms) to isolate one test from the next."""
        self.psql(f'create database "{name}" owner sutra_owner', database="postgres")
        return Database(self, name)

    def psql(self, sql, database="sutra", user="postgres"):
        """Runs SQL by psql, stopping at the first error (raised); rows as tuples of str, None for null."""
        done = run(
            [os.path.join(self.bin, "psql"), "-X", "-q", "-t", "--csv", "-v", "ON_ERROR_STOP=1", "-P", "null=\x1a",
             "-h", self.sockets, "-p", str(self.port), "-U", user, "-d", database, "-f", "-"],
            stdin=sql, timeout=120, env=self._environment(),
        )
        rows = csv.reader(io.StringIO(done.stdout, newline=""))
        return [tuple(None if cell == "\x1a" else cell for cell in row) for row in rows]

    def version(self):
        return run([os.path.join(self.bin, "postgres"), "--version"]).stdout.split()[2]

    def major(self):
        return int(re.match(r"\d+", self.version()).group())

    def stop(self):
        """Fast shutdown: sessions are ended, a checkpoint is written."""
        self.process.terminate(60, signal.SIGINT)

    def kill(self):
        """kill -9 of the server and its backends, all gone when it returns."""
        self.process.kill()
        # The dead server may linger as a zombie of a slow init, and then its lock files would look alive.
        for path in (f"{self.data}/postmaster.pid", f"{self.sockets}/.s.PGSQL.{self.port}.lock"):
            try:
                os.remove(path)
            except FileNotFoundError:
                pass

    def restart(self):
        self.stop()
        return self.start()

    def freeze(self):
        self.process.freeze()

    def thaw(self):
        self.process.thaw()

    def drop_connections(self, user="sutra"):
        """Ends every session of a role, as a failing network or an administrator would; returns how many."""
        return len(self.psql(
            f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{user}'", database="postgres"
        ))

    def close(self):
        """Kills it and removes its scratch folder. Safe to call twice."""
        self.kill()
        if self.scratch:
            remove(self.folder)

    def tail(self):
        return self.process.log_tail()

    def variables(self):
        return {
            "SUTRA_DATASOURCE_URL": self.url,
            "SUTRA_DATASOURCE_MIGRATE_URL": self.migrate_url,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "postgres",
            "PGDATABASE": "sutra",
        }

    def __enter__(self):
        return self.start()

    def __exit__(self, *_error):
        self.close()


def _options(parser):
    parser.add_argument("--mode", choices=sorted(MODES), default="fast", help="durable: fsync on, as in production")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a postgresql.conf setting")


def _make(args, folder):
    return Postgres(args.mode, dict(item.split("=", 1) for item in args.set), folder)


if __name__ == "__main__":
    command_line(_make, __doc__.splitlines()[0], _options)
