#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ring runner tells the truth: tests that fail, hang, die or cannot start are counted as failed, and clean up."""

import json
import os
import subprocess
import sys
import tempfile

RING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support", "ring.py")

# Time limits count a twentieth in this test: 20 is one second.
BAD = '''
import os, signal, subprocess, time, unittest

class A(unittest.TestCase):
    timeout = 20
    def test_1_fails(self):
        self.assertEqual(1, 2)
    def test_2_is_interrupted(self):
        try:
            time.sleep(60)
        finally:
            print("cleaned up")
    def test_3_hangs_whatever_comes(self):
        with open(os.environ["LEFT"], "w") as out:
            out.write(str(subprocess.Popen(["sleep", "600"]).pid))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])
        time.sleep(60)
    def test_4_dies(self):
        os.kill(os.getpid(), signal.SIGKILL)
    def test_5_fails_in_part(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(1, i)
    def test_6_skips(self):
        self.skipTest("a reason")
    def test_7_passes(self):
        open(os.path.join(os.environ["TMPDIR"], "left"), "w").close()

class B(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("the fixture")
    def test_never(self):
        pass

class C(unittest.TestCase):
    def test_passes(self):
        pass
'''
PROGRAM = "#!/bin/sh\necho '66%: Checks: 3, Failures: 1, Errors: 0'\nexit 1\n"
EXPECTED = {
    "A.test_1_fails": "FAILED", "A.test_2_is_interrupted": "FAILED", "A.test_3_hangs_whatever_comes": "FAILED",
    "A.test_4_dies": "FAILED", "A.test_5_fails_in_part": "FAILED", "A.test_6_skips": "skipped",
    "A.test_7_passes": "ok", "setUpClass": "FAILED", "C.test_passes": "ok", "(loading)": "FAILED",
}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, 0o755)


def run(folder, ring):
    """The exit code, the output, and the counts."""
    counts = os.path.join(folder, "counts")
    environment = {
        **os.environ, "SUTRA_TEST_TIME_FACTOR": "0.05", "SUTRA_BUILD_DIR": folder, "TMPDIR": folder,
        "LEFT": os.path.join(folder, "pid"),
    }
    done = subprocess.run(
        [sys.executable, RING, "--counts", counts, ring], capture_output=True, text=True, env=environment, timeout=240
    )
    with open(counts, encoding="utf-8") as source:
        return done.returncode, done.stdout + done.stderr, json.loads(source.read().splitlines()[-1])


def main():
    with tempfile.TemporaryDirectory() as folder:
        ring = os.path.join(folder, "bad")
        write(ring + "/test_bad.py", BAD)
        write(ring + "/test_broken.py", "import there_is_no_such_module\n")
        code, said, counts = run(folder, ring)
        print(said)
        assert code == 1
        for name, word in EXPECTED.items():
            assert any(line.split()[0] == word and name in line for line in said.splitlines()[:-1] if line.strip()), name
        assert (counts["passed"], counts["failed"], counts["skipped"]) == (2, 7, 1), counts
        assert "cleaned up" in said and "the fixture" in said and "a reason" in said
        with open(os.path.join(folder, "pid"), encoding="ascii") as source:
            assert not os.path.exists(f"/proc/{source.read()}/cwd"), "a process was left"
        assert not [name for name in os.listdir(folder) if name.startswith("sutra-")], "a folder was left"

        write(os.path.join(folder, "tests/programs/test_one"), PROGRAM)
        code, said, counts = run(folder, "programs")
        assert code == 1 and (counts["passed"], counts["failed"]) == (2, 1), said
        code, said, counts = run(folder, "empty")
        assert code == 1 and counts["failed"] == 1 and "no tests" in said, said


if __name__ == "__main__":
    main()
