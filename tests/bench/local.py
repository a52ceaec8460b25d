# SPDX-License-Identifier: Apache-2.0
"""hold-relay through `local`, and plain SQL in the engine's place: one run of each, with what it cost and what it has left."""

CONNECTIONS = (1, 8, 32)


def counts(server):
    names = ("instance", "completed", "inbox", "wait", "alias", "outbox", "dead_letter")
    row = server.server.psql(
        "select (select count(*) from sutra.instance), "
        "(select count(*) from sutra.instance where status = 'COMPLETED' and claim_owner is null and version = 2), "
        "(select count(*) from sutra.inbox), (select count(*) from sutra.wait), (select count(*) from sutra.alias), "
        "(select count(*) from sutra.outbox_entry), (select count(*) from sutra.dead_letter)")[0]
    return dict(zip(names, map(int, row)))


# --- runs ------------------------------------------------------------------------------------------------------------

class Bench:
    def __init__(self, driver, server, options):
        self.driver, self.server, self.options = driver, server, options
        self.problems = []

    def problem(self, text):
        self.problems.append(text)
        print(f"  WRONG: {text}")

    def check_counts(self, who, result):
        orders = result["orders"]
        expected = {"instance": orders, "completed": orders, "inbox": 2 * orders, "wait": 0, "alias": 0, "outbox": 0,
                    "dead_letter": 0}
        found = counts(self.server)
        for name, count in found.items():
            if count != expected[name]:
                self.problem(f"{who}: {count} rows of {name}, expected {expected[name]}")
        if result["steps"] != 2 * orders:
            self.problem(f"{who}: {result['steps']} steps of {orders} orders")

    def report(self, who, result):
        steps, server = result["steps"], result["server"]
        result["rate"] = steps / result["seconds"]
        result["cpu_ms"] = (result["cpu_us"] / 1e6 + server["cpu"]) / steps * 1e3
        print(f"  {who:<10} {result['rate']:8.0f} steps/s in {result['seconds']:.1f} s, step p50 {result['p50_us'] / 1e3:.1f} "
              f"p99 {result['p99_us'] / 1e3:.1f} ms, per step: {server['commits'] / steps:.4f} transactions, "
              f"{result['statements'] / steps:.3f} statements, {server['wal'] / steps:.0f} B WAL, "
              f"CPU {result['cpu_ms']:.3f} ms ({result['cpu_us'] / steps / 1e3:.3f} client, "
              f"{server['cpu'] / steps * 1e3:.3f} database); {server['fpi']} page images")

    def engine(self):
        self.server.empty()
        result = self.server.measure(lambda: self.driver.run("engine", self.options.seconds))
        self.report("engine", result)
        for name in ("lost", "doubled", "unknown", "given_back"):
            if result[name]:
                self.problem(f"engine: {result[name]} {name}")
        if result["total"] != result["total_expected"]:
            self.problem(f"engine: the replies sum up to {result['total']}, the orders to {result['total_expected']}")
        self.check_counts("engine", result)
        return result

    def reference(self, connections, seconds):
        self.server.empty()
        result = self.server.measure(lambda: self.driver.run("reference", seconds, connections))
        self.report(f"SQL x {connections}", result)
        self.check_counts("reference", result)
        return result

    def best_connections(self):
        print("reference, tried for 2 s each:")
        rates = {count: self.reference(count, 2)["rate"] for count in CONNECTIONS}
        return max(rates, key=rates.get)

    def digests(self, result):
        """One for every thousand orders, each over all before it too."""
        found = self.driver.run("verify", result["orders"])
        if found["rows"] != result["orders"]:
            self.problem(f"{found['rows']} of {result['orders']} orders have left an instance with both their events")
        return found["digests"]

    def pair(self, number, connections):
        """An engine run and a reference run; odd pairs the other way round."""
        print(f"pair {number + 1}:")
        runs = {"engine": self.engine, "reference": lambda: self.reference(connections, self.options.seconds)}
        results, digests = {}, {}
        for who in sorted(runs, reverse=number % 2):
            results[who] = runs[who]()
            digests[who] = self.digests(results[who])
        common = min(map(len, digests.values()))
        if not common or digests["engine"][common - 1] != digests["reference"][common - 1]:
            self.problem("the same orders have left different rows")
        ratio = results["engine"]["rate"] / results["reference"]["rate"]
        print(f"  ratio {ratio:.2f}; the first {common}000 orders of both have digest "
              f"{digests['engine'][common - 1][:16] if common else '-'}")
        return results["engine"], results["reference"], ratio


def print_batches(result):
    names = ["1"] + [f"<={2 ** i}" for i in range(1, 9)] + [">256"]
    pairs = [f"{name}: {count}" for name, count in zip(names, result["histogram"]) if count]
    print("commit batches by elements: " + ", ".join(pairs))
    means = [f"{kind} {elements / batches:.1f}" for kind, (batches, elements) in result["batches"].items() if batches]
    print("elements a batch, on average: " + ", ".join(means))
