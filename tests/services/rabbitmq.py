#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A throw-away RabbitMQ: one node with an epmd of its own, on free ports in a scratch folder.

    tests/services/rabbitmq.py run -- sh -c 'echo $AMQP_URL'
    tests/services/rabbitmq.py start --dir /tmp/rabbit; …; tests/services/rabbitmq.py remove --dir /tmp/rabbit
    tests/services/rabbitmq.py setup                   # once per machine, some minutes, as root: the servers of other eras
    tests/services/rabbitmq.py run --era 4.3 -- sh -c 'echo $AMQP_URL'

Variable: AMQP_URL.

No file, port or name is shared with a RabbitMQ that the machine runs for itself. The server is that of the distribution's
package. RabbitMQ changed what a returned message costs and where it goes to, so there are eras too: the distribution's
server where its version fits, else that of another Debian release (debian.py).
"""

import glob
import os
import re
import shutil
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "support"))
from process import (  # noqa: E402
    Process, ServiceError, State, Unavailable, command_line, exit_on_signals, free_port, record_version, remove, run, scratch,
    wait_until,
)
from debian import Root  # noqa: E402

READY = "completed with"
# Serial and small: tests share the machine.
ERLANG = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"


# The eras: a Debian release that has one, and the versions that count as it.
ERAS = {
    "3.10": ("bookworm", lambda version: version[:2] == [3, 10]),
    "4.0": ("trixie", lambda version: version[:2] == [4, 0]),
    "4.3": ("sid", lambda version: version >= [4, 3]),
}


class Installation:
    """A server that is installed: its folder, as its processes see it, and the command in front of theirs.

    Below `root` when that is given, a debian.Root, and else this machine's. Raises Unavailable when there is none.
    """

    def __init__(self, root=None):
        self.inside = root.inside if root else []
        top = root.root if root else ""
        servers = glob.glob(top + "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
        if not servers or not (root or shutil.which("epmd")):
            raise Unavailable("no RabbitMQ server (package rabbitmq-server)")
        folders = [os.path.dirname(os.path.dirname(path)).removeprefix(top) for path in servers]
        self.folder = max(folders, key=self._numbers)
        self.version = self.folder.rsplit("-", 1)[1]

    @staticmethod
    def _numbers(text):
        return [int(number) for number in re.findall(r"\d+", os.path.basename(text))]

    @classmethod
    def of_era(cls, era, setup=False):
        """This machine's where its version fits, else that of a Debian root, which setup=True builds."""
        suite, fits = ERAS[era]
        try:
            own = cls()
            if fits(cls._numbers(own.version)):
                return own
        except Unavailable:
            pass
        root = Root(suite, "rabbitmq-server")
        found = cls(root.ready() if setup else root.find())
        if not fits(cls._numbers(found.version)):
            raise Unavailable(f"{root.folder} has RabbitMQ {found.version}; without that folder the setup makes it anew")
        return found


class RabbitMQ:
    """One broker, of which guest may do everything from this machine.

    settings    more rabbitmq.conf, e.g. {"consumer_timeout": 10000}
    advanced    an advanced.config, for what rabbitmq.conf has no name for
    folder      where it lives; a scratch folder by default, which close() removes
    era         one of ERAS; the distribution's server by default, whatever that is
    management  True: with the management plugin, whose API is at management_url

    url         "amqp://guest:guest@127.0.0.1:PORT/", the same over restarts
    start(), stop(), kill() (-9), restart() (kill and start), freeze(), thaw(), control("list_queues").
    """

    def __init__(self, settings=None, folder=None, era=None, management=False, advanced=None):
        known = State(folder).load() if folder else {}
        self.era = era or known.get("era")
        self.installation = Installation.of_era(self.era) if self.era else Installation()
        self.scratch = folder is None
        self.folder = folder or scratch("rabbitmq")
        self.state = State(self.folder)
        self.ports = known.get("ports") or [free_port() for _ in range(3)]
        self.port, self.dist_port, self.epmd_port = self.ports
        self.settings = dict(settings or {})
        self.advanced = advanced
        self.management_url = None
        if management:
            port = free_port()
            self.management_url = f"http://127.0.0.1:{port}"
            self.settings.update({"management.tcp.ip": "127.0.0.1", "management.tcp.port": port})
        self.node = f"sutra{self.port}@localhost"
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self.process = Process("rabbitmq", os.path.join(self.folder, "log"))
        self.epmd = Process("epmd", os.path.join(self.folder, "epmd.log"))
        if known.get("pid"):
            self.process.attach(known["pid"])
            self.epmd.attach(known["epmd"])

    def environment(self):
        place = lambda name: os.path.join(self.folder, name)  # noqa: E731
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self.folder, "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node, "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_CONF_ENV_FILE": place("none.conf"), "RABBITMQ_CONFIG_FILE": place("rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": place("advanced.config" if self.advanced else "none.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": place("plugins"), "RABBITMQ_PID_FILE": place("pid"),
            "RABBITMQ_MNESIA_BASE": place("data"), "RABBITMQ_LOG_BASE": place("logs"), "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "RUNNING_UNDER_SYSTEMD": "true",  # the server then is the process itself and no child of a script
        }

    def start(self, detach=False):
        settings = {"log.console.level": "info", "disk_free_limit.absolute": "10MB", **self.settings}
        with open(os.path.join(self.folder, "rabbitmq.conf"), "w", encoding="utf-8") as out:
            out.write("".join(f"{name} = {value}\n" for name, value in settings.items()))
        with open(os.path.join(self.folder, "plugins"), "w", encoding="utf-8") as out:
            out.write("[rabbitmq_management].\n" if self.management_url else "[].\n")
        if self.advanced:
            with open(os.path.join(self.folder, "advanced.config"), "w", encoding="utf-8") as out:
                out.write(self.advanced)
        if not self.epmd.alive():
            self.epmd.start(self.command("epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"),
                            env=self.environment(), cwd=self.folder, detach=detach)
        self.process.start(self.command(self.installation.folder + "/sbin/rabbitmq-server"), env=self.environment(),
                           cwd=self.folder, detach=detach)
        wait_until(lambda: self.process.must_live() and READY in self.process.log_text(), 90, "RabbitMQ to start")
        self.state.save({"ports": self.ports, "pid": self.process.pid, "epmd": self.epmd.pid, "era": self.era})
        record_version("RabbitMQ " + self.version())
        return self

    def version(self):
        return self.installation.version

    def command(self, *arguments):
        return [*self.installation.inside, *arguments]

    def control(self, *arguments, timeout=60):
        """rabbitmqctl; returns what it prints."""
        command = self.command(self.installation.folder + "/sbin/rabbitmqctl", "-q", "-n", self.node, *arguments)
        return run(command, env=self.environment(), cwd=self.folder, timeout=timeout).stdout

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
        self.epmd.kill()
        if self.scratch:
            remove(self.folder)

    def tail(self):
        return self.process.log_tail()

    def variables(self):
        return {"AMQP_URL": self.url}

    def __enter__(self):
        return self.start()

    def __exit__(self, *_error):
        self.close()


class _Detached(RabbitMQ):
    """For the commands: epmd ends with the node."""

    def stop(self):
        super().stop()
        self.epmd.kill()

    def kill(self):
        super().kill()
        self.epmd.kill()


def _options(parser):
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a rabbitmq.conf setting")
    parser.add_argument("--era", choices=ERAS, help="a server of that era instead of the distribution's")


def _make(args, folder):
    return _Detached(dict(item.split("=", 1) for item in args.set), folder, args.era)


def _setup():
    """Builds what the eras need and prints their versions; the exit code is 1 if one cannot be had here."""
    code = 0
    for era in ERAS:
        try:
            found = Installation.of_era(era, setup=True)
            print(f"rabbitmq-{era}: RabbitMQ {found.version}", flush=True)
        except (ServiceError, Unavailable) as reason:
            print(f"rabbitmq-{era}: {reason}", file=sys.stderr, flush=True)
            code = 1
    return code


if __name__ == "__main__":
    if sys.argv[1:] == ["setup"]:
        exit_on_signals()
        sys.exit(_setup())
    command_line(_make, __doc__.splitlines()[0], _options)
