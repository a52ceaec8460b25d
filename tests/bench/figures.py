# SPDX-License-Identifier: Apache-2.0
"""Figures with goals: one table at the end, and all that was sampled as JSON."""

import json
import os
import platform
import re
import statistics
import time

import bench as base


def median(samples):
    return statistics.median(samples)


class Figures:
    """What was measured. A figure without a goal is shown and cannot be missed."""

    def __init__(self):
        self.rows = []
        self.problems = []
        self.samples = {}
        self.settings = {}
        self.began = time.monotonic()

    def add(self, name, value, unit="", reference=None, reference_name="", at_least=None, at_most=None, of="value"):
        """`of` says what the goal is for: the value, or "ratio": value to reference."""
        ratio = value / reference if reference else None
        judged = ratio if of == "ratio" else value
        met = None
        if at_least is not None:
            met = judged is not None and judged >= at_least
        if at_most is not None:
            met = judged is not None and judged <= at_most
        goal = "" if met is None else (f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}")
        row = {"figure": name, "value": value, "unit": unit, "reference": reference, "reference_name": reference_name,
               "ratio": ratio, "goal": goal + (" x" if goal and of == "ratio" else ""), "met": met}
        self.rows.append(row)
        verdict = {None: "", True: "met", False: "MISSED"}[met]
        print(f"  = {name}: {number(value)} {unit}" + (f", {number(ratio)} x {reference_name}" if ratio else "")
              + (f" (goal {row['goal']}: {verdict})" if goal else ""), flush=True)

    def problem(self, text):
        """Something that no figure excuses: a message lost or doubled, other rows."""
        self.problems.append(text)
        print(f"  WRONG: {text}", flush=True)

    def sample(self, name, result):
        self.samples.setdefault(name, []).append(result)

    def missed(self):
        return [row["figure"] for row in self.rows if row["met"] is False]

    def print_table(self):
        heads = ("figure", "measured", "reference", "ratio", "goal", "")
        lines = [heads]
        for row in self.rows:
            reference = f"{number(row['reference'])} {row['reference_name']}" if row["reference"] else ""
            lines.append((row["figure"], f"{number(row['value'])} {row['unit']}".strip(), reference,
                          number(row["ratio"]) if row["ratio"] else "", row["goal"],
                          {None: "", True: "met", False: "MISSED"}[row["met"]]))
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        for index, line in enumerate(lines):
            print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
            if not index:
                print("|" + "|".join("-" * (width + 2) for width in widths) + "|")

    def write(self, path, versions):
        document = {
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "processor": processor(),
                        "load_at_end": os.getloadavg()},
            "versions": versions, "settings": self.settings, "took_s": time.monotonic() - self.began,
            "figures": self.rows, "problems": self.problems, "samples": self.samples,
        }
        with open(path, "w", encoding="utf-8") as out:
            json.dump(document, out, indent=1)
            out.write("\n")


def number(value):
    if value is None:
        return ""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as source:
        found = re.search(r"model name\s*:\s*(.*)", source.read())
    return found.group(1) if found else platform.machine()


def threads_seconds(pid):
    """CPU of a process's living threads, in the scheduler's own nanoseconds: a tick is too coarse for what is often woken."""
    spent = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as source:
                spent += int(source.read().split()[0])
        except OSError:
            pass
    return spent / 1e9


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as source:
        return int(re.search(r"VmRSS:\s*(\d+) kB", source.read()).group(1)) / 1024


def fail(text):
    base.fail(text)
