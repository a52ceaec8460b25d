#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A throw-away RabbitMQ: one node of the distribution's package, with an epmd of its own, on free ports in a scratch folder.

    tests/services/rabbitmq.py run -- sh -c 'echo $AMQP_URL'
    tests/services/rabbitmq.py start --dir /tmp/rabbit; …; tests/services/rabbitmq.py remove --dir /tmp/rabbit

Variable: AMQP_URL.

No file, port or name is shared with a RabbitMQ that the machine runs for itself.
"""

import glob
import os
import re
import shutil
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "support"))
from process import (  # noqa: E402
    Process, State, Unavailable, command_line, free_port, record_version, remove, run, scratch, wait_until,
)

READY = "completed with"
# Serial and small: tests share the machine.
ERLANG = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"


def installation():
    """The newest installed server's folder; raises Unavailable when there is none."""
    found = glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
    if not found or not shutil.which("epmd"):
        raise Unavailable("no RabbitMQ server (package rabbitmq-server)")
    folders = [os.path.dirname(os.path.dirname(path)) for path in found]
    return max(folders, key=lambda path: [int(number) for number in re.findall(r"\d+", os.path.basename(path))])


class RabbitMQ:
    """One broker, of which guest may do everything from this machine.

    settings    more rabbitmq.conf, e.g. {"consumer_timeout": 10000}
    folder      where it lives; a scratch folder by default, which close() removes

    url         "amqp://guest:guest@127.0.0.1:PORT/", the same over restarts
    start(), stop(), kill() (-9), restart() (kill and start), freeze(), thaw(), control("list_queues").
    """

    def __init__(self, settings=None, folder=None):
        self.installation = installation()
        self.scratch = folder is None
        self.folder = folder or scratch("rabbitmq")
        self.state = State(self.folder)
        known = self.state.load()
        self.ports = known.get("ports") or [free_port() for _ in range(3)]
        self.port, self.dist_port, self.epmd_port = self.ports
        self.settings = dict(settings or {})
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
            "RABBITMQ_ADVANCED_CONFIG_FILE": place("none.config"),
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
            out.write("[].\n")
        if not self.epmd.alive():
            self.epmd.start(["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"],
                            env=self.environment(), cwd=self.folder, detach=detach)
        self.process.start([self.installation + "/sbin/rabbitmq-server"], env=self.environment(), cwd=self.folder,
                           detach=detach)
        wait_until(lambda: self.process.must_live() and READY in self.process.log_text(), 90, "RabbitMQ to start")
        self.state.save({"ports": self.ports, "pid": self.process.pid, "epmd": self.epmd.pid})
        record_version("RabbitMQ " + self.version())
        return self

    def version(self):
        return self.installation.rsplit("-", 1)[1]

    def control(self, *arguments, timeout=60):
        """rabbitmqctl; returns what it prints."""
        command = [self.installation + "/sbin/rabbitmqctl", "-q", "-n", self.node, *arguments]
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


def _make(args, folder):
    return _Detached(dict(item.split("=", 1) for item in getattr(args, "set", [])), folder)


if __name__ == "__main__":
    command_line(_make, __doc__.splitlines()[0], _options)
