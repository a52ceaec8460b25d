# SPDX-License-Identifier: Apache-2.0
"""What a step costs, in instructions: a guard against slow growth that needs no quiet machine.

The bench's process (two steps an order) runs through a whole replica in memory under valgrind, once with few orders and
once with more; the difference is what the steps take, without start and stop.  Whoever makes steps dearer on purpose
writes the new figure here; `make check-cost` prints it.
"""

import os
import platform
import re
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import ROOT, Case, build_dir, built, run  # noqa: E402

BOUND = 171000  # instructions of a step, measured with gcc 12 at -O2 on x86_64
SLACK = 1.10
FEW, MANY = 200, 1400


def is_optimised():
    """Other builds have other figures, and a sanitizer does not run under valgrind."""
    with open(os.path.join(build_dir(), "Makefile"), encoding="utf-8") as source:
        text = source.read()
    flags = re.search(r"^CFLAGS = (.*)$", text, re.MULTILINE)
    return bool(flags and "-O2" in flags.group(1)) and not re.search(r"^SUTRA_CFLAGS = .*-fsanitize", text, re.MULTILINE)


class Cost(Case):
    timeout = 60

    def instructions(self, orders):
        environment = {
            "PATH": os.environ["PATH"], "SUTRA_BENCH_ORDERS": str(orders), "SUTRA_BENCH_WINDOW": "64",
            "SUTRA_ENGINE_SHARDS": "16", "SUTRA_BENCH_PACKAGE": os.path.join(ROOT, "tests", "bench", "hold-relay"),
        }
        done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", built("driver"), "engine", "1"],
                   env=environment, cwd=self.folder(), timeout=50)
        self.assertIn(f'"steps": {2 * orders}, ', done.stdout)
        self.assertIn('"lost": 0, "doubled": 0', done.stdout)
        return int(re.search(r"Collected\s*:\s*(\d+)", done.stderr).group(1))

    @unittest.skipUnless(platform.machine() == "x86_64", "the bound is of x86_64")
    @unittest.skipUnless(shutil.which("valgrind"), "no valgrind")
    def test_instructions_of_a_step(self):
        if not is_optimised():
            self.skipTest("the bound is of a build with -O2 and without sanitizers")
        few, many = self.instructions(FEW), self.instructions(MANY)
        each = (many - few) / (2 * (MANY - FEW))
        print(f"{each:.0f} instructions a step; the bound is {BOUND} and {SLACK - 1:.0%}", file=sys.stderr)
        self.assertLessEqual(each, BOUND * SLACK)
        # Much less: the bound has lost its sense, and should be written anew.
        self.assertGreaterEqual(each, BOUND * 0.7)


if __name__ == "__main__":
    unittest.main()
