# SPDX-License-Identifier: Apache-2.0
"""The scenarios of `make bench`, one method each, and the servers that they share."""

import os
import re
import subprocess
import sys
import time
import traceback

import bench as base
import local
import over
from figures import Figures, median, resident_mb, threads_seconds
from harness import wait_until
import harness

SET_BATCH = 256
HERE = os.path.dirname(os.path.abspath(__file__))


class World:
    """Servers, started when a scenario wants them, and what was measured."""

    def __init__(self, path, options):
        self.options = options
        self.figures = Figures()
        self.postgres = base.postgresql.Postgres("durable", base.SERVER)
        self.path = path
        self.brokers = {}
        self.local_rates = []

    def __enter__(self):
        self.postgres.start()
        self.driver = base.Driver(self.path, self.postgres, "hold-relay")
        self.server = base.Server(self.postgres)
        self.driver.run("migrate")
        self.driver.run("capture")
        self.postgres.psql("create sequence bench.batches start 1000; grant usage on bench.batches to sutra")
        self.bench = local.Bench(self.driver, self.server, self.options)
        # Its findings are ours.
        self.bench.problems = self.figures.problems
        self.figures.settings = {"engine": base.ENGINE, "postgresql": dict(self.postgres.psql(
            "select name, current_setting(name) from pg_settings where source <> 'default'"))}
        return self

    def __exit__(self, *_error):
        for broker in self.brokers.values():
            broker.close()
        self.postgres.close()

    def versions(self):
        found = {"postgresql": self.postgres.version(),
                 "sutra": harness.sutra("--version", check=False).stdout.strip()}
        return {**found, **{name: broker.version() for name, broker in self.brokers.items()}}

    def broker(self, name):
        if name not in self.brokers:
            self.brokers[name] = (over.Kafka if name == "kafka" else over.RabbitMQ)().start()
            # A broker that has just started is slow: Kafka until the compiler has seen most of it.
            self.relay(name, 20 if name == "kafka" else 5)
        return self.brokers[name]

    def run(self):
        """The names of scenarios that could not be run."""
        failed = []
        for name in self.options.scenarios:
            print(f"--- {name} (load {os.getloadavg()[0]:.1f})", flush=True)
            began = time.monotonic()
            try:
                getattr(self, "run_" + name)()
            except (harness.ServiceError, harness.Unavailable, OSError, subprocess.SubprocessError) as error:
                traceback.print_exc(limit=4)
                print(f"  {name} could not be run: {error}")
                failed.append(name)
            print(f"  took {time.monotonic() - began:.0f} s", flush=True)
        return failed

    def alternate(self, number, runs):
        """Runs each, in the other order in odd rounds; results by name."""
        return {name: runs[name]() for name in sorted(runs, reverse=number % 2)}

    # --- through local

    def engine_run(self, batch_max=None):
        if batch_max:
            self.driver.environment["SUTRA_DATASOURCE_BATCH_MAX"] = str(batch_max)
        try:
            result = self.bench.engine()
        finally:
            self.driver.environment.pop("SUTRA_DATASOURCE_BATCH_MAX", None)
        self.figures.sample(f"local, batch-max {batch_max or 256}", result)
        return result

    def set_run(self):
        """What sets of the same rows take, over two connections, in steps a second."""
        self.server.empty()
        command = [os.path.join(self.postgres.bin, "pgbench"), "-n", "-M", "prepared", "-c", "2", "-j", "1", "-T", str(self.options.seconds),
                   "-D", f"batch={SET_BATCH}", "-f", os.path.join(HERE, "reference", "set.sql"), "sutra"]
        env = {"PATH": os.environ["PATH"], "PGHOST": "127.0.0.1", "PGPORT": str(self.postgres.port), "PGUSER": "sutra",
               "PGOPTIONS": "-c sutra.tenant=,default, -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"}
        began = self.server.figures()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        after = self.server.figures()
        match = re.search(r"transactions actually processed: (\d+)", done.stdout)
        if done.returncode or not match:
            raise harness.ServiceError(done.stdout + done.stderr)
        orders = int(match.group(1)) * SET_BATCH
        found = local.counts(self.server)
        if found != {"instance": orders, "completed": orders, "inbox": 2 * orders, "wait": 0, "alias": 0, "outbox": 0,
                     "dead_letter": 0}:
            self.figures.problem(f"the sets have left {found} of {orders} orders")
        seconds = orders / float(re.search(r"tps = ([\d.]+)", done.stdout).group(1)) / SET_BATCH
        result = {"steps": 2 * orders, "rate": 2 * orders / seconds, "server": {
            name: after[name] - began[name] for name in after}, "sizes": self.sizes()}
        print(f"  sets       {result['rate']:8.0f} steps/s, per step: {result['server']['wal'] / result['steps']:.0f} B WAL, "
              f"CPU {result['server']['cpu'] / result['steps'] * 1e3:.3f} ms database")
        self.figures.sample("sets", result)
        return result

    def sizes(self):
        """Bytes of a row, on average, of what stays."""
        return [round(float(size)) for size in self.postgres.psql(
            "select (select avg(pg_column_size(i.*) - pg_column_size(i.id)) from sutra.instance i), "
            "(select avg(pg_column_size(i.*)) from sutra.inbox i)")[0]]

    def best_connections(self):
        rates = {count: self.bench.reference(count, 2)["rate"] for count in local.CONNECTIONS}
        return max(rates, key=rates.get)

    def run_local(self):
        options, rounds = self.options, []
        best = self.best_connections()
        for number in range(options.rounds):
            print(f"round {number + 1}:")
            engine, reference, _ = self.bench.pair(number, best)
            sizes = self.sizes() if not number % 2 else None
            self.figures.sample("local, batch-max 256", engine)
            self.figures.sample(f"SQL x {best}", reference)
            sets = self.set_run()
            single = self.engine_run(batch_max=1)
            if sizes and any(abs(mine - theirs) > 16 for mine, theirs in zip(sets["sizes"], sizes)):
                self.figures.problem(f"rows of sets have {sets['sizes']} bytes, others {sizes}")
            rounds.append((engine, reference, sets, single))
        self.local_rates = [engine["rate"] for engine, *_ in rounds]
        engine, reference, sets, single = (median(r[i]["rate"] for r in rounds) for i in range(4))
        add = self.figures.add
        add("local: steps/s, against set-based SQL", engine, "/s", sets, "sets", at_least=0.5, of="ratio")
        add("local: steps/s, against a transaction a step", engine, "/s", reference, f"SQL x {best}", at_least=4, of="ratio")
        add("local: steps/s, against batch-max 1", engine, "/s", single, "batch-max 1", at_least=8, of="ratio")
        self.costs("local", [r[0] for r in rounds])
        local.print_batches(rounds[-1][0])

    def costs(self, name, results):
        def each(of):
            return median(of(result) / result["steps"] for result in results)

        add = self.figures.add
        add(f"{name}: CPU per step, engine and database", each(lambda r: r["cpu_us"] / 1e3 + r["server"]["cpu"] * 1e3), "ms",
            at_most=0.2)
        add(f"{name}: CPU per step, engine alone", each(lambda r: r["cpu_us"] / 1e3), "ms")
        add(f"{name}: transactions per step", each(lambda r: r["server"]["commits"]), at_most=0.2)
        add(f"{name}: statements per step", each(lambda r: r["statements"]), at_most=1)
        add(f"{name}: WAL per step, past page images", each(lambda r: r["server"]["wal"] - r["server"]["image"]), "B",
            at_most=2048)

    # --- over a broker

    def relay(self, name, seconds):
        """The reference without a database."""
        side = self.brokers[name].fresh()
        relay = side.relay()
        try:
            result = side.load(seconds)
        finally:
            relay.terminate()
            relay.wait(30)
            side.close()
        result["rate"] = result["steps"] / result["seconds"]
        return result

    def relay_run(self, name):
        result = self.relay(name, self.options.seconds)
        print(f"  {name} alone {result['rate']:8.0f} messages in and out a second")
        self.figures.sample(f"{name} alone", result)
        return result

    def check(self, who, result):
        for key in ("lost", "doubled", "unknown"):
            if result[key]:
                self.figures.problem(f"{who}: {result[key]} {key}")
        if result["total"] != result["total_expected"]:
            self.figures.problem(f"{who}: the replies sum up to {result['total']}, the orders to {result['total_expected']}")

    def over_run(self, name):
        broker = self.broker(name)
        side = broker.fresh()
        self.server.empty()
        engine = side.engine(self.postgres)
        pid, service = engine.pid, broker.process.pid
        before = (threads_seconds(pid), threads_seconds(service), self.server.figures(),
                  engine.metric("sutra_store_statements_total"))
        result = side.load(self.options.seconds)
        after = (threads_seconds(pid), threads_seconds(service), self.server.figures(),
                 engine.metric("sutra_store_statements_total"))
        result["batches"] = self.batches(engine)
        if engine.terminate():
            self.figures.problem(f"{name}: the replica did not stop in order")
        result["rate"] = result["steps"] / result["seconds"]
        result["load_cpu_us"], result["cpu_us"] = result["cpu_us"], (after[0] - before[0]) * 1e6
        result["broker_cpu_us"] = (after[1] - before[1]) * 1e6
        result["server"] = {key: after[2][key] - before[2][key] for key in after[2]}
        result["statements"] = after[3] - before[3]
        result["counts"] = local.counts(self.server)
        self.check(name, result)
        orders = result["orders"]
        expected = {"instance": orders, "completed": orders, "inbox": 2 * orders, "wait": 0, "alias": 0, "outbox": 0,
                    "dead_letter": 0}
        if result["counts"] != expected:
            self.figures.problem(f"{name}: {result['counts']} rows of {orders} orders")
        if side.left():
            self.figures.problem(f"{name}: {side.left()} messages are left at the broker")
        steps = result["steps"]
        print(f"  {name:<10} {result['rate']:8.0f} steps/s in {result['seconds']:.1f} s, CPU per step: engine "
              f"{result['cpu_us'] / steps / 1e3:.3f}, database {result['server']['cpu'] / steps * 1e3:.3f}, broker "
              f"{result['broker_cpu_us'] / steps / 1e3:.3f}, load {result['load_cpu_us'] / steps / 1e3:.3f} ms; "
              f"{result['server']['commits'] / steps:.3f} transactions", flush=True)
        self.figures.sample(name, result)
        side.close()
        return result

    @staticmethod
    def batches(engine):
        text = engine.get("/metrics")[1]
        return {le: int(count) for le, count in re.findall(
            r'sutra_batch_elements_bucket\{kind="commit",le="([^"]+)"\} (\d+)', text)}

    def run_over(self, name, goal):
        rounds = []
        self.broker(name)
        for number in range(self.options.rounds):
            print(f"round {number + 1}:")
            rounds.append(self.alternate(number, {"local": self.engine_run, "over": lambda: self.over_run(name),
                                                  "alone": lambda: self.relay_run(name)}))
        rate = median(r["over"]["rate"] for r in rounds)
        self.figures.add(f"{name}: steps/s, against local", rate, "/s", median(r["local"]["rate"] for r in rounds), "local",
                         at_least=goal, of="ratio")
        self.figures.add(f"{name}: steps/s, against the broker alone", rate, "/s", median(r["alone"]["rate"] for r in rounds),
                         "in and out")
        self.costs(name, [r["over"] for r in rounds])
        self.figures.add(f"{name}: CPU per step, broker", median(
            r["over"]["broker_cpu_us"] / r["over"]["steps"] / 1e3 for r in rounds), "ms")
        for which, part in enumerate(("order", "payment")):
            latency = rounds[-1]["over"]["latency_us"][which]
            print(f"  {part} in to message out at full load: p50 {latency['p50'] / 1e3:.1f}, p99 {latency['p99'] / 1e3:.1f}, "
                  f"p99.9 {latency['p999'] / 1e3:.1f} ms; commit batches {rounds[-1]['over']['batches']}")

    def run_kafka(self):
        self.run_over("kafka", 0.6)

    def run_rabbitmq(self):
        self.run_over("rabbitmq", 0.4)

    # --- latency

    def run_latency(self):
        most = median(self.local_rates) if self.local_rates else self.engine_run()["rate"]
        for percent in (10, 50, 80):
            results = []
            for _ in range(self.options.rounds):
                self.server.empty()
                result = self.server.measure(lambda rate=int(most * percent / 100): self.driver.run(
                    "pace", self.options.seconds, rate))
                self.check(f"latency at {percent} %", result)
                self.figures.sample(f"latency at {percent} %", result)
                results.append(result)
            for quantile, goal in (("p50", 5), ("p99", 20), ("p999", None)):
                worst = median(max(side[quantile] for side in result["latency_us"]) / 1e3 for result in results)
                self.figures.add(f"latency at {percent} % ({most * percent / 100:.0f}/s): {quantile.replace('p999', 'p99.9')}",
                                 worst, "ms", at_most=goal if percent == 10 else None)

    # --- a replica at rest, its start and its end

    def local_replica(self, packages=1, transport="local", sides=()):
        """A configuration of so many copies of hold-relay, with names of their own."""
        folder = harness.scratch("bench")
        for number in range(packages):
            over.write_copy(folder, number, transport)
        config = {"deployment.dir": folder, "datasource.url": self.postgres.url, "log.level": "warning",
                  "connections": [side.connection() for side in sides]}
        return harness.Sutra(config if sides else {name: value for name, value in config.items() if name != "connections"})

    def rest(self, engine, what):
        seconds = self.options.seconds
        # What the start itself takes is no part of it.
        wait_until(lambda: self.spent_in_a_second(engine.pid) < 0.01, 60, "the start to be over")
        before, began = threads_seconds(engine.pid), time.monotonic()
        wait_until(lambda: time.monotonic() >= began + seconds, seconds + 5, "the end", interval=0.2)
        share = (threads_seconds(engine.pid) - before) / (time.monotonic() - began) * 100
        self.figures.add(f"idle{what}: RSS", resident_mb(engine.pid), "MB", at_most=20)
        self.figures.add(f"idle{what}: CPU", share, "%", at_most=0.5)

    @staticmethod
    def spent_in_a_second(pid):
        before, end = threads_seconds(pid), time.monotonic() + 1
        wait_until(lambda: time.monotonic() >= end, 5, "a second", interval=0.1)
        return threads_seconds(pid) - before

    def run_idle(self):
        self.server.empty()
        engine = self.local_replica().start()
        self.rest(engine, "")
        engine.terminate()
        self.park(self.options.parked)
        engine = self.local_replica().start()
        self.rest(engine, f", {self.options.parked} parked")
        engine.terminate()
        self.server.empty()

    def park(self, count):
        print(f"  parking {count} instances", flush=True)
        self.postgres.psql(f"""
            insert into sutra.instance select lpad(to_hex(n), 32, '0')::uuid, tenant, deployment_id, process, status, version,
                now(), null, null, null, null, null, snapshot from bench.spawn_instance, generate_series(1, {count}) n;
            insert into sutra.wait (key, slot, tenant, instance_id, token, node, channel, deployment_id, created_at)
                select md5('wait' || n)::uuid, slot, tenant, lpad(to_hex(n), 32, '0')::uuid, token, node, channel,
                deployment_id, now() from bench.spawn_wait, generate_series(1, {count}) n;
            insert into sutra.alias (key, slot, tenant, instance_id, name, value) select md5('alias' || n)::uuid,
                '00000000-0000-0000-0000-000000000000', tenant, lpad(to_hex(n), 32, '0')::uuid, name, 'order-' || n
                from bench.spawn_alias, generate_series(1, {count}) n;
            insert into sutra.inbox (key, instance_id, created_at, tenant) select md5('orders' || n)::uuid,
                lpad(to_hex(n), 32, '0')::uuid, now(), 'default' from generate_series(1, {count}) n;
            checkpoint;""")

    def run_start(self):
        broker = self.broker("rabbitmq")
        names = [f"{channel}-{number}" for number in range(20) for channel in over.CHANNELS]
        with broker.connect() as amqp:
            for name in names:
                amqp.declare(name)
        side = broker.fresh()
        starts, stops = [], []
        for _ in range(max(self.options.rounds, 3)):
            engine = self.local_replica(20, "amqp", [side])
            starts.append(start_seconds(engine))
            began = time.monotonic()
            if engine.terminate():
                self.figures.problem("start: the replica did not stop in order")
            stops.append(time.monotonic() - began)
            self.nothing_left("stop when idle")
        self.figures.samples["start"], self.figures.samples["stop when idle"] = starts, stops
        self.figures.add("start to ready, 20 processes on RabbitMQ", median(starts), "s", at_most=0.2)
        self.figures.add("stop on SIGTERM when idle", median(stops), "s", at_most=2)
        side.close()

    def nothing_left(self, what):
        found = self.postgres.psql(
            "select (select count(*) from sutra.instance where claim_owner is not null), "
            "(select count(*) from sutra.outbox_entry where claim_owner is not null), "
            "(select count(*) from sutra.lease where holder is not null and expires_at > now())")[0]
        if any(count != "0" for count in found):
            self.figures.problem(f"{what}: {found[0]} claims, {found[1]} stamps, {found[2]} leases are left behind")

    def under_load(self, act, silence=30):
        """Has `act(engine, side)` in the middle of a load over RabbitMQ, and a second replica that finishes it."""
        side = self.broker("rabbitmq").fresh()
        self.server.empty()
        engine = side.engine(self.postgres)
        side.environment["SUTRA_BENCH_SILENCE"] = str(silence)
        load = side.load_begin(max(self.options.seconds, 15))
        wait_until(lambda: int(self.server.value("select count(*) from sutra.instance where status = 'COMPLETED'")) > 500,
                   30, "the load to be under way")
        answer = act(engine, side)
        result = side.load_end(load, 900)
        side.close()
        return answer, result

    def run_stop(self):
        took = []

        def stop(engine, side):
            began = time.monotonic()
            if engine.terminate():
                self.figures.problem("stop under load: the replica did not stop in order")
            took.append(time.monotonic() - began)
            self.nothing_left("stop under load")
            return side.engine(self.postgres)

        for _ in range(self.options.rounds):
            second, result = self.under_load(stop)
            second.terminate()
            self.check("stop under load", result)
        self.figures.samples["stop under load"] = took
        self.figures.add("stop on SIGTERM under load", median(took), "s")

    def run_recovery(self):
        """Until nothing of the dead replica's is left: its claims, the stamps of what it was sending, its leases."""
        found = {}

        def kill(engine, side):
            second = side.engine(self.postgres)
            like = f"like '%-{engine.pid}-%'"
            held = (f"select (select count(*) from sutra.instance where claim_owner {like}), (select count(*) from "
                    f"sutra.outbox_entry where claim_owner {like}), (select count(*) from sutra.lease where holder {like} "
                    "and expires_at > now())")
            engine.kill()
            began = time.monotonic()
            found["held"] = list(map(int, self.postgres.psql(held)[0]))
            print("  the replica that was killed had {} claims, {} stamps, {} leases".format(*found["held"]), flush=True)
            if not any(found["held"]):
                raise harness.ServiceError("it held nothing that could be waited for")

            def all_free():
                for name, count in zip(("claims", "stamps", "leases"), self.postgres.psql(held)[0]):
                    if count == "0":
                        found.setdefault(name, time.monotonic() - began)
                return len(found) == 4

            wait_until(all_free, 600, "everything to be free", interval=0.1)
            return second

        second, result = self.under_load(kill, silence=400)
        second.terminate()
        if result["lost"]:
            self.figures.problem(f"recovery: {result['lost']} lost")
        self.figures.samples["recovery"] = [found]
        self.figures.add("recovery of a killed replica's claims", found["claims"], "s", at_most=15)
        self.figures.add("recovery of what it was sending", found["stamps"], "s", at_most=15)
        self.figures.add("recovery of its leases", found["leases"], "s", at_most=15)
        self.figures.add("recovery: messages that came twice under one key", result["doubled"])

    # --- a snapshot that is held

    def run_snapshot(self):
        seconds, ratios, free, held = min(self.options.snapshot, 600), [], [], []
        for number in range(self.options.rounds if seconds < 120 else 1):
            rates = {}
            for hold in (True, False) if number % 2 else (False, True):
                session = self.hold_snapshot() if hold else None
                self.server.empty()
                result = self.driver.run("engine", seconds, timeout=seconds + 120)
                if session:
                    session.communicate("commit;\n", timeout=30)
                rates[hold] = result["steps"] / result["seconds"]
                self.figures.sample("snapshot held" if hold else "snapshot not held", result)
            held.append(rates[True])
            free.append(rates[False])
            ratios.append(rates[True] / rates[False])
            print(f"  {rates[True]:.0f} steps/s with a snapshot held open for {seconds} s, {rates[False]:.0f} without", flush=True)
        self.figures.add(f"a snapshot held open for {seconds} s", median(held), "/s", median(free), "without", at_least=0.9,
                         of="ratio")

    def hold_snapshot(self):
        """Of another database table, so that the tables can be emptied; the horizon is the server's all the same."""
        session = subprocess.Popen(
            [os.path.join(self.postgres.bin, "psql"), "-X", "-q", "-h", "127.0.0.1", "-p", str(self.postgres.port), "-U",
             "postgres", "-d", "sutra"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        session.stdin.write("begin isolation level repeatable read; select count(*) from bench.spawn_instance;\n")
        session.stdin.flush()
        wait_until(lambda: self.server.value("select count(*) from pg_stat_activity where state = 'idle in transaction' "
                                             "and backend_xmin is not null") != "0", 10, "the snapshot")
        return session

    # --- the others' benches

    def script(self, name, *options):
        path = os.path.join(HERE, name)
        if not os.path.exists(path):
            print(f"  there is no tests/bench/{name}")
            return None
        env = {**os.environ, "SUTRA_BUILD_DIR": os.environ["SUTRA_BUILD_DIR"]}
        done = subprocess.run([sys.executable, "-B", path, *options], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=1800)
        print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
        self.figures.sample(name, done.stdout)
        return done

    def run_history(self):
        done = self.script("history")
        for what, ratio in re.findall(r"ratio of (time|CPU|cpu): ([\d.]+)", done.stdout) if done else ():
            self.figures.add(f"history: {what} of a resume at 10 000 steps to one at 10", float(ratio), at_most=1.1)

    def run_held(self):
        done = self.script("held", "--items=4000")
        for name, ratios in re.findall(r"^(kafka|rabbit): ratios ([\d. ]+)$", done.stdout, re.MULTILINE) if done else ():
            self.figures.add(f"held: throughput beside a held message, {name}", median(map(float, ratios.split())),
                             at_least=0.95)

    def run_timers(self):
        done = self.script("timers")
        fires = re.search(r"^(\d+) fires a second", done.stdout, re.MULTILINE) if done else None
        late = re.search(r"late by ([\d.]+) ms \(p50\), ([\d.]+) ms \(p99\)", done.stdout) if done else None
        if fires:
            self.figures.add("timers: fires a second, all due at one moment", float(fires.group(1)), at_least=3000)
        for what, value in zip(("p50", "p99"), late.groups() if late else ()):
            self.figures.add(f"timers: lateness at 500 a second, {what}", float(value), "ms")


def start_seconds(engine):
    """From the start of the process to readiness."""
    began = time.monotonic()
    engine.launch()
    engine.port = wait_until(engine._announced, 30, "the admin port", interval=0.001)
    wait_until(lambda: engine.get("/sutra/health/ready")[0] == 200, 30, "readiness", interval=0.001)
    return time.monotonic() - began
