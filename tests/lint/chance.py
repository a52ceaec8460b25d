# SPDX-License-Identifier: Apache-2.0
"""Time and chance come from the loop, and the environment from config: nothing else could be replayed from a seed.

Only base reads clocks and random numbers. The commands of cli run outside of any loop and may use base's clocks, never
the system's. How much work a thread has done is not a time of day: CLOCK_THREAD_CPUTIME_ID may be read anywhere.
"""
import re

import common

SYSTEM = ("clock_gettime gettimeofday timespec_get time clock nanosleep clock_nanosleep usleep sleep rand srand rand_r "
          "random srandom drand48 lrand48 arc4random getrandom getentropy RAND_bytes RAND_priv_bytes timerfd_create alarm "
          "setitimer uv_now uv_hrtime uv_timer_init uv_timer_start uv_random uv_sleep uv_gettimeofday").split()
BASE_CLOCKS = "time_wall_us time_monotonic_us time_random".split()
ENVIRONMENT = "getenv secure_getenv setenv putenv unsetenv uv_os_getenv uv_os_environ".split()
TREES = ("src/", "codecs/", "transports/", "tests/sim/")


def calls(names):
    # Not the member of a structure that has the same name.
    return re.compile(r"(?<![\w.>])(" + "|".join(names) + r")\s*\(")


def check(root):
    findings = []
    for path in common.tree_files(root, ".c", ".h"):
        if not path.startswith(TREES) or path.startswith("src/base/"):
            continue
        clocks = SYSTEM if path.startswith("src/cli/") else SYSTEM + BASE_CLOCKS
        environment = [] if path.startswith("src/config/") else ENVIRONMENT
        text = common.code_only(common.read(root, path))
        for match in calls(clocks + environment).finditer(text):
            if text.startswith("CLOCK_THREAD_CPUTIME_ID", match.end()):
                continue
            findings.append(f"{path}:{common.line_of(text, match.start())}: {match.group(1)}: outside base"
                            + (" and config" if match.group(1) in ENVIRONMENT else ""))
        if not path.startswith("src/config/"):
            for match in re.finditer(r"\bextern\s+char\s*\*\*\s*environ\b", text):
                findings.append(f"{path}:{common.line_of(text, match.start())}: environ: outside base and config")
    return findings


PLANTS = [
    ("src/flow/planted.c", "int64_t f(void)\n{\n\treturn time_wall_us();\n}\n"),
    ("src/flow/planted.c", "int f(void)\n{\n\treturn rand();\n}\n"),
    ("src/engine/planted.c", "long f(void)\n{\n\treturn time (NULL);\n}\n"),
    ("transports/kafka/planted.c", "void f(void)\n{\n\tusleep(10);\n}\n"),
    ("src/admin/planted.c", "const char *f(void)\n{\n\treturn getenv(\"HOME\");\n}\n"),
    ("src/cli/planted.c", "long f(void)\n{\n\treturn clock_gettime(0, NULL);\n}\n"),
    ("src/config/planted.c", "long f(void)\n{\n\treturn time_monotonic_us();\n}\n"),
]

common.main(check, PLANTS)
