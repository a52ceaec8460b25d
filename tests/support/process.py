# SPDX-License-Identifier: Apache-2.0
"""Processes, ports, scratch folders and deadlines for the tests.

Everything the service starters and the harness have in common.  Python's standard library only.

Rules kept here:
  - a started process and a scratch folder are gone when this interpreter ends, however it ends short of SIGKILL;
    the ring runner covers that case by killing the process group and removing TMPDIR;
  - nothing sleeps blindly: wait_until() polls a condition and has a deadline, and says what it was waiting for.
"""

import atexit
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Sanitizers and a busy machine make everything slower: one factor stretches every deadline of the tests.
TIME_FACTOR = float(os.environ.get("SUTRA_TEST_TIME_FACTOR", "1"))

# What a sanitizer writes when it found something; a process that logged one of these has failed its test.
SANITIZER_REPORT = re.compile(
    r"ERROR: (Address|Leak|Thread|Memory)Sanitizer|WARNING: ThreadSanitizer|: runtime error: "
)


class ServiceError(AssertionError):
    """A server or the engine did not do what the test needs; the text ends with the tail of its log."""


class Unavailable(Exception):
    """This machine cannot run a service (not installed, no network for its first setup)."""


def wait_until(condition, timeout=30.0, what="the condition", interval=0.02):
    """Returns the first true value of condition(), or raises ServiceError after `timeout` seconds.

    The interval grows to ten times its start, so that quick things are seen quickly and slow ones cost little.
    An exception of the condition ends the wait at once; return False for "not yet".
    """
    deadline = time.monotonic() + timeout * TIME_FACTOR
    pause = interval
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise ServiceError(f"waited {timeout * TIME_FACTOR:.0f} s for {what}; last seen: {value!r}")
        time.sleep(pause)
        pause = min(pause * 1.3, interval * 10)


def free_port():
    """A TCP port of 127.0.0.1 that nobody listens on.

    Taken from below the kernel's ephemeral range: a client that keeps connecting to a dead server's port in that
    range can end up connected to itself, and then the restarted server finds its port taken.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(14000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServiceError("no free port between 14000 and 32000")


_folders = []
_processes = []


def scratch(prefix):
    """A new folder under TMPDIR, removed at exit unless SUTRA_TEST_KEEP is set. Other users may pass through it."""
    path = tempfile.mkdtemp(prefix=prefix + "-")
    os.chmod(path, 0o711)
    _folders.append(path)
    return path


def remove(path):
    """Removes a scratch folder now (kept, and said, with SUTRA_TEST_KEEP)."""
    if os.environ.get("SUTRA_TEST_KEEP"):
        return
    shutil.rmtree(path, ignore_errors=True)
    if path in _folders:
        _folders.remove(path)


@atexit.register
def _clean():
    for process in list(_processes):
        process.kill()
    for path in list(_folders):
        remove(path)


def exit_on_signals():
    """SIGTERM and SIGHUP end the interpreter through its exit handlers, so that nothing is left running."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, _frame: sys.exit(128 + signum))


def cache_folder(name):
    """The folder `name` of what is fetched or built once per machine."""
    cache = os.environ.get("SUTRA_TEST_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sutra-tests"
    )
    return os.path.join(os.path.abspath(cache), name)


def record_version(text):
    """Notes the version of a server a test ran against, for the ring's summary line."""
    path = os.environ.get("SUTRA_TEST_VERSIONS")
    if path:
        with open(path, "a", encoding="utf-8") as out:
            out.write(text + "\n")


def run(argv, *, timeout=60, check=True, stdin=None, env=None, cwd=None, text=True, user=None):
    """Runs a command to its end and returns the CompletedProcess; a failure raises with what it printed."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout * TIME_FACTOR,
            env=env,
            cwd=cwd,
            text=text,
            **as_user(user),
        )
    except subprocess.TimeoutExpired as late:
        raise ServiceError(f"{argv[0]} did not end within {late.timeout:.0f} s: {' '.join(argv)}") from None
    if check and done.returncode != 0:
        out, err = done.stdout, done.stderr
        if not text:
            out, err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        raise ServiceError(f"{' '.join(argv)}: exit code {done.returncode}\n{out[-2000:]}{err[-4000:]}")
    return done


def as_user(entry):
    """Arguments for subprocess that drop to the user of a pwd entry; none when `entry` is None."""
    if entry is None:
        return {}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def tail(path, lines=60):
    """The last lines of a text file, "" when there is none."""
    try:
        with open(path, "rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - lines * 400))
            return "\n".join(source.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""


def descendants(pid):
    """Process ids of the children of `pid`, and theirs."""
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as source:
                    todo.extend(int(child) for child in source.read().split())
        except OSError:
            pass
        found.append(parent)
    return found[1:]


def running(pid):
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as source:
            return source.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Process:
    """One server process with its log file: start, look, signal, stop, start again.

    name     what messages call it
    log      path of the file that takes its standard output and error; appended to over restarts
    user     a pwd entry to run as, or None

    The log offset of the latest start is remembered, so that a "ready" line of an earlier run is never taken
    for the present one.
    """

    def __init__(self, name, log, user=None):
        self.name = name
        self.log = log
        self.user = user
        self.pid = None
        self.log_start = 0
        self._popen = None
        self.returncode = None

    def start(self, argv, *, env=None, cwd=None, detach=False):
        if self.alive():
            raise ServiceError(f"{self.name} runs already")
        with open(self.log, "ab") as out:
            self.log_start = out.seek(0, os.SEEK_END)
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=detach,
                **as_user(self.user),
            )
        self.pid = self._popen.pid
        self.returncode = None
        if not detach:
            _processes.append(self)

    def attach(self, pid):
        """Takes over a process that an earlier command started."""
        self.pid = pid

    def alive(self):
        if self._popen is not None:
            self.returncode = self._popen.poll()
            return self.returncode is None
        return self.pid is not None and running(self.pid)

    def must_live(self):
        """True, or raises with the log's tail when the process has ended: for use in wait conditions."""
        if not self.alive():
            raise ServiceError(f"{self.name} ended with {self.returncode}\n{self.log_tail()}")
        return True

    def send_signal(self, number):
        if self.alive():
            os.kill(self.pid, number)

    def wait(self, timeout=30.0):
        """Waits for the end and returns the exit code (negative: the signal; None for an attached process)."""
        wait_until(lambda: not self.alive(), timeout, f"{self.name} (pid {self.pid}) to end")
        self._ended()
        return self.returncode

    def terminate(self, timeout=30.0, number=signal.SIGTERM):
        """Asks it to stop and waits; returns the exit code. What ignores the request is killed, and that raises."""
        if self.pid is None:
            return self.returncode
        self.send_signal(number)
        try:
            return self.wait(timeout)
        except ServiceError as late:
            self.kill()
            raise ServiceError(f"{late}\n{self.log_tail()}") from None

    def kill(self):
        """kill -9 of the process and of all it started; returns when they are gone."""
        if self.pid is None:
            return
        family = [self.pid] + descendants(self.pid) if self.alive() else []
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self._popen is not None:
            self.returncode = self._popen.wait()
        wait_until(lambda: not any(running(pid) for pid in family), 10, f"{self.name} to die")
        self._ended()

    def freeze(self):
        """SIGSTOP for it and its children: to the others it looks like a machine that vanished."""
        for pid in [self.pid] + descendants(self.pid):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in [self.pid] + descendants(self.pid):
            os.kill(pid, signal.SIGCONT)

    def log_text(self, whole=False):
        """The log since the latest start, or all of it."""
        try:
            with open(self.log, "rb") as source:
                source.seek(0 if whole else self.log_start)
                return source.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def log_tail(self, lines=60):
        text = tail(self.log, lines)
        return f"--- {self.name}: last lines of {self.log}\n{text}\n---" if text else f"--- {self.name}: empty log"

    def _ended(self):
        if self in _processes:
            _processes.remove(self)
        self.pid = None


class State:
    """A small JSON file that lets a later command find what an earlier one started."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "service.json")

    def load(self):
        try:
            with open(self.path, encoding="utf-8") as source:
                return json.load(source)
        except OSError:
            return {}

    def save(self, values):
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            json.dump(values, out)
        os.replace(self.path + ".new", self.path)


def command_line(make, description, options=None):
    """The command line that every starter has.

    run [options] -- COMMAND…     starts the service, runs COMMAND with the service's variables, cleans up,
                                  ends with COMMAND's exit code; without COMMAND it serves until a signal
    start --dir D [options]       starts it in the background on the data in D (made if absent), prints the variables
    stop | kill | remove --dir D  stops it, kills it with signal 9, or kills it and removes D

    `make(args, folder)` builds the service object: start(detach=), stop(), kill(), close(), variables().
    `options(parser)` adds the service's own options.
    """
    import argparse

    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "start", "stop", "kill", "remove"):
        sub = commands.add_parser(name)
        if name != "run":
            sub.add_argument("--dir", required=True, help="folder of the service's data")
        if options:
            options(sub)
        if name == "run":
            sub.add_argument("argv", nargs="*", metavar="COMMAND")
    args = parser.parse_args()
    exit_on_signals()
    try:
        sys.exit(_command(make, args))
    except Unavailable as missing:
        print(f"{os.path.basename(sys.argv[0])}: {missing}", file=sys.stderr)
        sys.exit(77)  # as a test that is skipped
    except ServiceError as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _command(make, args):
    if args.command == "run":
        service = make(args, None)
        try:
            service.start()
            if args.argv:
                return subprocess.call(args.argv, env={**os.environ, **service.variables()})
            _print_variables(service)
            service.process.wait(float("inf"))
            return 1
        finally:
            service.close()
    folder = os.path.abspath(args.dir)
    if args.command == "start":
        os.makedirs(folder, exist_ok=True)
        service = make(args, folder)
        service.start(detach=True)
        _print_variables(service)
        return 0
    if not os.path.isdir(folder):
        return 0 if args.command == "remove" else 1
    service = make(args, folder)
    if args.command == "stop":
        service.stop()
    else:
        service.kill()
    if args.command == "remove":
        shutil.rmtree(folder)
    return 0


def _print_variables(service):
    for name, value in service.variables().items():
        print(f"{name}={value}")
    sys.stdout.flush()
