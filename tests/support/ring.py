#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one ring of tests and prints a line for each test and a sum for the ring.

    tests/support/ring.py [--list] [--counts FILE] RING [PATTERN…]

RING is `unit` (make check in the build tree) or a folder of tests/: its files test_*.py, and the programs
tests/RING/test_* of the build tree.  A PATTERN picks the tests whose name contains it.

Each Python file runs in a process group and a TMPDIR of its own, both of which are gone afterwards whatever the
file did.  A test over its time (`timeout` of its class or method, 120 s by default) is first interrupted by an
exception, so that it shows its logs and cleans up; if that does not end it, its process group is killed, and the
rest of the file goes on in a new one.

Exit code 0: at least one test was found, and none failed.
"""

import argparse
import glob
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FACTOR = float(os.environ.get("SUTRA_TEST_TIME_FACTOR", "1"))
DEFAULT_TIMEOUT = 120
PROGRAM_TIMEOUT = 900
GRACE = 45  # seconds that an interrupted test has for its cleanup, and a file for its class fixtures
CHECK_LINE = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)", re.MULTILINE)
SHOWN_LINES = 200


class Timeout(AssertionError):
    pass


# --- the child: one test file ----------------------------------------------------------------------------------------


class Reporter(unittest.TestResult):
    """Writes an event line for each start and end of a test to the parent's pipe, and keeps the time limit."""

    def __init__(self, pipe):
        super().__init__()
        self.pipe = pipe
        self.bad = []
        self.why_skipped = None

    def send(self, **event):
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe.write(json.dumps(event) + "\n")
        self.pipe.flush()

    def startTest(self, test):
        super().startTest(test)
        self.bad, self.why_skipped = [], None
        method = getattr(test, test._testMethodName, None)
        limit = getattr(method, "timeout", getattr(test, "timeout", DEFAULT_TIMEOUT)) * FACTOR
        self.send(event="start", name=name_of(test), limit=limit)
        signal.setitimer(signal.ITIMER_REAL, limit)

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        outcome = "failed" if self.bad else "skipped" if self.why_skipped is not None else "passed"
        self.send(event="end", name=name_of(test), outcome=outcome, text="\n".join(self.bad) or self.why_skipped or "")
        super().stopTest(test)

    def addError(self, test, err):
        super().addError(test, err)
        self._bad(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._bad(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.bad.append(str(subtest))
            self._bad(test, err)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.bad.append("succeeded, but is marked as an expected failure")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.why_skipped = reason

    def _bad(self, test, err):
        if isinstance(test, unittest.TestCase):
            self.bad.append(self._exc_info_to_string(err, test))  # without the frames of unittest itself
        else:  # a fixture of a class or module: no test was started
            self.send(event="start", name=str(test), limit=GRACE)
            text = "".join(traceback.format_exception(*err))
            self.send(event="end", name=str(test), outcome="failed", text=text)


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


def tests_of(path):
    """The TestCases of a file, in the order of classes as written and of methods by name."""
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = []
    for thing in vars(module).values():
        if isinstance(thing, type) and issubclass(thing, unittest.TestCase) and thing.__module__ == spec.name:
            found.extend(unittest.defaultTestLoader.loadTestsFromTestCase(thing))
    return found


def child(path, descriptor, listing):
    """Runs the tests named on standard input, one a line; with `listing` says only what tests there are."""

    def expired(_signum, _frame):
        raise Timeout("the test's time is up")

    sys.path.insert(0, os.path.join(TESTS, "support"))
    from process import exit_on_signals

    exit_on_signals()
    signal.signal(signal.SIGALRM, expired)
    pipe = os.fdopen(descriptor, "w", encoding="utf-8")
    try:
        tests = tests_of(path)
    except BaseException:  # what a broken file raises is its result
        Reporter(pipe).send(event="broken", text=traceback.format_exc())
        return 1
    if listing:
        Reporter(pipe).send(event="tests", names=[name_of(test) for test in tests])
        return 0
    wanted = set(sys.stdin.read().split("\n"))
    suite = unittest.TestSuite(test for test in tests if name_of(test) in wanted)
    suite.run(Reporter(pipe))
    return 0


# --- the parent ------------------------------------------------------------------------------------------------------


class Ring:
    def __init__(self, name, patterns, build):
        self.name = name
        self.patterns = patterns
        self.build = build
        self.passed = self.failed = self.skipped = self.found = 0
        self.folder = tempfile.mkdtemp(prefix="sutra-")
        os.chmod(self.folder, 0o711)
        self.versions = os.path.join(self.folder, "versions")
        self.environment = {
            **os.environ,
            "SUTRA_BUILD_DIR": build,
            "SUTRA_TEST_VERSIONS": self.versions,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def wants(self, name):
        return not self.patterns or any(pattern in name for pattern in self.patterns)

    def report(self, name, outcome, seconds, text=""):
        """One line for a test, and for a failed one what it said."""
        self.found += 1
        setattr(self, outcome, getattr(self, outcome) + 1)
        word = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[outcome]
        note = f": {text.strip()}" if outcome == "skipped" else ""
        took = "" if seconds is None else f" ({seconds:.1f} s)"
        print(f"  {word:8}{name}{took}{note}", flush=True)
        if outcome == "failed" and text:
            lines = text.rstrip().splitlines()
            if len(lines) > 2 * SHOWN_LINES:
                lines = lines[:SHOWN_LINES] + [f"… {len(lines) - 2 * SHOWN_LINES} lines …"] + lines[-SHOWN_LINES:]
            print("\n".join("    | " + line for line in lines), flush=True)

    # Python files

    def spawn(self, path, scratch, output, listing=False):
        read, write = os.pipe()
        process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--child", path, str(write)] + (["--list"] if listing else []),
            stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=[write], start_new_session=True,
            env={**self.environment, "TMPDIR": scratch}, text=True,
        )
        os.close(write)
        return process, read

    def tests_in(self, path):
        """The names of a file's tests; a file that cannot be loaded is a failed test."""
        with tempfile.TemporaryFile() as output:
            process, read = self.spawn(path, self.folder, output, listing=True)
            process.stdin.close()
            with os.fdopen(read, encoding="utf-8") as events:
                lines = [json.loads(line) for line in events]
            process.wait()
            output.seek(0)
            said = output.read().decode("utf-8", "replace")
        if lines and lines[-1]["event"] == "tests":
            return lines[-1]["names"]
        self.report(self.label(path, "(loading)"), "failed", None, (lines[-1]["text"] if lines else "") + said)
        return []

    def label(self, path, test):
        return f"{self.name}/{os.path.basename(path).removesuffix('.py')}: {test}"

    def run_file(self, path):
        todo = [name for name in self.tests_in(path) if self.wants(self.label(path, name))]
        while todo:
            before = len(todo)
            self.run_some(path, todo)
            if len(todo) == before:  # it died before the first test, so the next try would too
                self.report(self.label(path, "(fixtures)"), "failed", None, "the file ended before its tests did")
                return

    def run_some(self, path, todo):
        """Runs the tests of `todo` in one process, removing each that has ended, until it ends or must be killed."""
        scratch = tempfile.mkdtemp(prefix="t", dir=self.folder)
        os.chmod(scratch, 0o711)
        with tempfile.TemporaryFile() as output:
            process, read = self.spawn(path, scratch, output)
            try:
                process.stdin.write("\n".join(todo))
                process.stdin.close()
                self.follow(path, todo, process, read, output)
            finally:
                os.close(read)
                self.reap(process)
                shutil.rmtree(scratch, ignore_errors=True)

    def follow(self, path, todo, process, read, output):
        """Reads events until the pipe ends; the running test answers for a silence that lasts too long."""
        current, began, mark, buffered = None, time.monotonic(), 0, b""
        patience = (GRACE + DEFAULT_TIMEOUT) * FACTOR
        while True:
            left = began + patience - time.monotonic()
            if left <= 0 or not select.select([read], [], [], left)[0]:
                self.dead(path, todo, current, began, mark, output, "did not end in time and was killed")
                return
            chunk = os.read(read, 65536)
            if not chunk:
                break
            *lines, buffered = (buffered + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["event"] == "start":
                    current, began, mark = event["name"], time.monotonic(), os.fstat(output.fileno()).st_size
                    patience = event["limit"] + GRACE * FACTOR
                elif event["event"] == "end":
                    said = self.said(output, mark) if event["outcome"] == "failed" else ""
                    took = time.monotonic() - began
                    self.report(self.label(path, event["name"]), event["outcome"], took, event["text"] + said)
                    if event["name"] in todo:
                        todo.remove(event["name"])
                    else:  # a fixture failed: its class' tests will not run
                        owner = re.search(r"\(.*\.(\w+)\)", event["name"])
                        prefix = owner.group(1) + "." if owner else ""
                        todo[:] = [name for name in todo if not name.startswith(prefix)]
                    current, began, patience = None, time.monotonic(), (GRACE + DEFAULT_TIMEOUT) * FACTOR
        process.wait()
        if current:
            self.dead(path, todo, current, began, mark, output, f"the test's process ended with {process.returncode}")

    def dead(self, path, todo, current, began, mark, output, why):
        name = current or "(fixtures)"
        self.report(self.label(path, name), "failed", time.monotonic() - began, why + "\n" + self.said(output, mark))
        if current in todo:
            todo.remove(current)
        else:
            todo.clear()

    @staticmethod
    def said(output, mark):
        output.seek(mark)
        text = output.read().decode("utf-8", "replace")
        output.seek(0, os.SEEK_END)
        return text

    @staticmethod
    def reap(process):
        """Ends everything that the file's process group still holds."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10 * FACTOR)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    # Programs

    def run_program(self, path):
        name = f"{self.name}/{os.path.basename(path)}"
        scratch = tempfile.mkdtemp(prefix="t", dir=self.folder)
        os.chmod(scratch, 0o711)
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [path], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=scratch,
                env={**self.environment, "TMPDIR": scratch, "top_srcdir": os.path.dirname(TESTS),
                     "top_builddir": self.build},
            )
            try:
                code = process.wait(PROGRAM_TIMEOUT * FACTOR)
            except subprocess.TimeoutExpired:
                code = None
            self.reap(process)
            said = self.said(output, 0)
        shutil.rmtree(scratch, ignore_errors=True)
        if code is None:
            said += "\ndid not end in time and was killed"
        self.program_result(name, code, said, time.monotonic() - began)

    def program_result(self, name, code, said, seconds):
        """Counts a program: by the lines of the Check library if it printed some, else as one test."""
        checks = failures = 0
        for match in CHECK_LINE.finditer(said):
            checks += int(match.group(1))
            failures += int(match.group(2)) + int(match.group(3))
        if code == 77:
            self.report(name, "skipped", seconds, said.strip().splitlines()[-1] if said.strip() else "")
        elif code == 0 and not failures:
            self.report(name + (f", {checks} checks" if checks else ""), "passed", seconds)
            self.passed += max(checks, 1) - 1
        else:
            self.report(name, "failed", seconds, said)
            failures = max(failures, 1)
            self.failed += failures - 1
            self.passed += max(checks - failures, 0)

    # make check

    def run_unit(self):
        """make check, its results read back from automake's .trs and .log files."""
        for stale in glob.glob(self.build + "/**/*.trs", recursive=True):
            os.remove(stale)
        limit = f"timeout -k 10 {int(300 * FACTOR)}"
        environment = {**self.environment, "TMPDIR": self.folder, "CK_DEFAULT_TIMEOUT": str(int(60 * FACTOR))}
        command = [
            "make", "-C", self.build, "-k", f"-j{os.cpu_count()}", "check", f"LOG_COMPILER={limit}",
            f"PY_LOG_COMPILER={limit} {sys.executable}", f"SH_LOG_COMPILER={limit} sh",
        ]
        if self.patterns:
            logs = [line for line in self.unit_logs() if self.wants(line)]
            if not logs:
                return
            command.append("TEST_LOGS=" + " ".join(logs))
        with open(os.path.join(self.build, "check.log"), "w+b") as output:
            code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
            said = self.said(output, 0)
        results = sorted(glob.glob(self.build + "/**/*.trs", recursive=True))
        for trs in results:
            self.unit_result(trs)
        if code != 0 and not self.failed:
            self.report("unit/make check", "failed", None, "\n".join(said.splitlines()[-SHOWN_LINES:]))

    def unit_logs(self):
        probe = "print-test-logs: ; @echo $(TEST_LOGS)"
        done = subprocess.run(
            ["make", "-s", "-C", self.build, "--eval", probe, "print-test-logs"], capture_output=True, text=True
        )
        return done.stdout.split()

    def unit_result(self, trs):
        with open(trs, encoding="utf-8", errors="replace") as source:
            match = re.search(r"^:global-test-result: *(\w+)", source.read(), re.MULTILINE)
        result = match.group(1) if match else "ERROR"
        log = trs.removesuffix(".trs") + ".log"
        said = ""
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as source:
                said = source.read()
        name = os.path.relpath(trs, self.build).removesuffix(".trs").removeprefix("tests/")
        code = {"PASS": 0, "XFAIL": 0, "SKIP": 77}.get(result, 1)
        self.program_result(name, code, said, None)

    # All

    def run(self, listing):
        if self.name == "unit":
            self.run_unit() if not listing else print("\n".join(self.unit_logs()))
            return
        files = sorted(glob.glob(os.path.join(TESTS, self.name, "test_*.py")))
        programs = [
            path for path in sorted(glob.glob(os.path.join(self.build, "tests", self.name, "test_*")))
            if "." not in os.path.basename(path) and os.path.isfile(path) and os.access(path, os.X_OK)
        ]
        for path in programs:
            if self.wants(f"{self.name}/{os.path.basename(path)}"):
                print(os.path.relpath(path, self.build)) if listing else self.run_program(path)
        for path in files:
            if listing:
                print("\n".join(self.label(path, name) for name in self.tests_in(path)))
            else:
                self.run_file(path)

    def sum(self):
        """Prints the ring's line and returns its counts; a ring without tests counts as failed."""
        if not self.found:
            self.report(f"{self.name} has no tests", "failed", None)
        versions = []
        if os.path.exists(self.versions):
            with open(self.versions, encoding="utf-8") as source:
                versions = sorted(set(source.read().split("\n")) - {""})
        against = " (" + ", ".join(versions) + ")" if versions else ""
        print(f"ring {self.name}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped{against}", flush=True)
        return {"ring": self.name, "passed": self.passed, "failed": self.failed, "skipped": self.skipped}


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], int(sys.argv[3]), "--list" in sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the tests' names, run nothing")
    parser.add_argument("--counts", metavar="FILE", help="append the counts to FILE as a JSON line")
    parser.add_argument("ring", metavar="RING")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    args = parser.parse_args()
    build = os.environ.get("SUTRA_BUILD_DIR") or os.path.join(os.path.dirname(TESTS), "build-tests")
    ring = Ring(args.ring, args.patterns, os.path.abspath(build))
    signal.signal(signal.SIGTERM, lambda _signum, _frame: sys.exit(143))
    try:
        ring.run(args.list)
        if args.list:
            return 0
        counts = ring.sum()
    finally:
        shutil.rmtree(ring.folder, ignore_errors=True)
    if args.counts:
        with open(args.counts, "a", encoding="utf-8") as out:
            out.write(json.dumps(counts) + "\n")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
