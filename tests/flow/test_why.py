# SPDX-License-Identifier: Apache-2.0
"""Why is it not moving? `sutra why` on messages that are held, kept, early and late, over one replica and two."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402
from harness import free_port, wait_until  # noqa: E402
from saga import Saga, dev, statuses, store  # noqa: E402

OWNER = "somebody-else-1-abc-s0"


class Why(harness.Case):
    timeout = 120

    def replica(self, config=None, **saga):
        self.database = self.postgres()
        self.migrate(self.database)
        self.saga = Saga(None, self.folder(), create=False, **saga)
        self.engine = dev(self, self.saga, self.database, {"instance.claim-timeout": "PT60S", **(config or {})})

    def claimed_order(self):
        """An order that waits for its payment, claimed by hand; and the id of its instance."""
        order, = self.saga.orders(1)
        self.saga.send_orders([order])
        self.saga.wait_parked(self.database, 1)
        instance = self.database.psql("select id from sutra.instance")[0][0]
        self.claim(instance, f"'{OWNER}'")
        return order, instance

    def claim(self, instance, owner):
        self.database.psql(f"update sutra.instance set claim_owner = {owner}, "
                           f"claim_at = case when {owner} is null then null else now() end where id = '{instance}'")

    def url(self, engine=None):
        return f"http://127.0.0.1:{(engine or self.engine).port}"

    def why(self, kind, name, *arguments, check=True):
        done = harness.sutra("why", kind, name, "--url", self.url(), *arguments, check=check,
                             env={"SUTRA_ADMIN_KEY": self.engine.KEY})
        return done if not check else done.stdout

    def asked(self, kind, name, *arguments, check=False):
        return json.loads(self.why(kind, name, "--json", *arguments, check=check).stdout)

    def cause(self, answer, name):
        found = [cause for cause in answer["causes"] if cause["cause"] == name]
        self.assertEqual(1, len(found), answer)
        self.assertTrue(found[0]["remedy"])
        return found[0]["what"]

    def held_for(self, instance):
        """Waits until a payment is held for it, with two tries or more; the delivery."""
        def look():
            found = self.asked("instance", instance)["deliveries"]
            return found and found[0]["attempts"] > 1 and found[0]["state"] == "held" and found[0]
        return wait_until(look, 20, "a held delivery")

    def test_who_holds_it_and_what_is_held(self):
        self.replica({"refusal.hold": "PT60S"})
        order, instance = self.claimed_order()
        self.saga.send_payments([order])
        delivery = self.held_for(instance)
        answer = self.asked("instance", instance)
        self.assertEqual(OWNER, answer["claim"]["owner"])
        self.assertIn(OWNER, self.cause(answer, "claimed"))
        self.assertTrue(40 <= answer["claim"]["freeInSeconds"] <= 60, answer["claim"])
        self.assertIn(order.id, self.cause(answer, "waits"))
        wait = answer["waits"][0]
        self.assertEqual(("payments", order.id), (wait["channel"], wait["keys"][0]["value"]))
        self.assertEqual(instance, delivery["instance"])
        self.assertRegex(delivery["source"], r"^kafka:payments-\w+/\d+/0$")
        # By what the log says, and by the event id.
        for name in (delivery["source"], delivery["eventId"]):
            message = wait_until(lambda: (m := self.asked("message", f"default/payments/{name}"))["state"] == "held" and m,
                                 20, "it to be held")
            self.assertIn(instance, self.cause(message, "refused"))
        text = self.why("message", f"default/payments/{delivery['eventId']}")
        self.assertIn("do: ", text)
        self.claim(instance, "null")
        wait_until(lambda: statuses(self.database).get("COMPLETED") == 1, 20, "the order to complete")
        message = self.asked("message", f"default/payments/{delivery['eventId']}")
        self.assertEqual(("effect", instance), (message["state"], message["effect"]["instance"]))
        self.assertIn("had its effect", self.cause(message, "effect"))
        self.assertIn("COMPLETED", self.cause(self.asked("instance", instance), "ended"))

    def test_what_the_database_keeps(self):
        self.replica({"refusal.hold": "PT0.3S"})
        order, instance = self.claimed_order()
        self.saga.send_payments([order])
        wait_until(lambda: self.engine.metric("sutra_kept_messages", channel="payments") == 1, 20, "it to be kept")
        kept, = self.engine.get("/admin/kept")[1]["kept"]
        boot = self.asked("instance", instance)["replicas"][0]["replica"]
        self.assertEqual(("payments", boot), (kept["channel"], kept["keeper"]))
        self.assertEqual(1, self.engine.metric("sutra_deliveries_total", channel="payments", outcome="persisted"))
        message = self.asked("message", f"default/payments/{kept['source']}")
        self.assertEqual(("kept", boot, 0), (message["state"], message["kept"]["keeper"], message["kept"]["ahead"]))
        self.assertIn(boot, self.cause(message, "kept"))
        answer = wait_until(lambda: (a := self.asked("instance", instance))["kept"] and a, 20, "the instance to know of it")
        self.assertEqual(kept["id"], answer["kept"][0]["id"])
        self.claim(instance, "null")
        wait_until(lambda: statuses(self.database).get("COMPLETED") == 1, 20, "the order to complete")
        wait_until(lambda: self.engine.metric("sutra_kept_messages", channel="payments") == 0, 20, "nothing to be kept")
        self.assertEqual([], self.engine.get("/admin/kept")[1]["kept"])

    def test_what_an_early_message_looks_for(self):
        # With its third try the database keeps it: seconds away, so that it is seen held before.
        self.replica({"refusal.backoff.min": "PT1S"}, hold="PT4S")
        order, = self.saga.orders(1)
        self.saga.send_payments([order])

        def look():
            held = self.asked("channel", "default/payments")["deliveries"]
            return held and self.asked("message", f"default/payments/{held[0]['source']}")
        message = wait_until(lambda: (m := look()) and m["state"] == "kept" and m["deliveries"] and m, 20, "it to be kept")
        self.assertEqual("early", message["kept"]["kind"])
        self.assertIn("has come early", self.cause(message, "kept"))
        self.assertIsNotNone(message["deliveries"][0]["unmatchedUntil"])
        self.assertIn(f"= {order.id}", self.cause(message, "unmatched"))
        self.assertEqual(order.id, message["deliveries"][0]["lookedFor"][0]["value"])
        source = message["deliveries"][0]["source"]
        late = wait_until(lambda: (m := self.asked("message", f"default/payments/{source}"))["state"] == "dead-letter" and m,
                          20, "its hold to end")
        self.assertEqual("SUTRA.RUNTIME.RELAY.CORRELATION_NOT_FOUND", late["deadLetter"]["code"])

    def test_a_full_window_says_so(self):
        self.replica({"refusal.hold": "PT0.2S", "hold.max-persisted": 1}, hold="PT2S",
                     settings={"payments": {"max-in-flight": 2}})
        order, instance = self.claimed_order()
        self.saga.send_payments([order] * 6)

        def detail():
            checks = {check["name"]: check for check in self.engine.get("/sutra/health/ready")[1]["checks"]}
            return checks["channel:default/payments"]["data"]["detail"] or ""
        wait_until(lambda: "hold.max-persisted is reached" in detail() and "max-in-flight = 2 is full" in detail(), 20,
                   "readiness to say so")
        self.assertIn("max-in-flight = 2 is full", self.cause(self.asked("channel", "default/payments"), "bounds"))
        self.claim(instance, "null")
        wait_until(lambda: "max" not in detail(), 20, "the window to be free")

    def test_two_replicas_make_one_answer(self):
        self.replica({"refusal.hold": "PT60S"})
        other = self.sutra({**self.saga.config(), **store(self.database), "instance.claim-timeout": "PT60S",
                            "refusal.hold": "PT60S"})
        order, instance = self.claimed_order()
        self.saga.send_payments([order])
        both = ("--url", self.url(other))
        wait_until(lambda: self.asked("instance", instance, *both)["deliveries"], 40, "a held delivery at either")
        answer = wait_until(lambda: (a := self.asked("instance", instance, *both))["deliveries"] and a, 20, "a held delivery")
        self.assertEqual(2, len({replica["replica"] for replica in answer["replicas"]}))
        self.assertIn(answer["deliveries"][0]["replica"], {replica["replica"] for replica in answer["replicas"]})
        self.cause(answer, "claimed")
        self.cause(answer, "waits")
        source = answer["deliveries"][0]["source"]
        message = wait_until(lambda: (m := self.asked("message", f"default/payments/{source}", *both))["state"] == "held" and m,
                             20, "it to be held")
        self.assertNotIn("unknown", [cause["cause"] for cause in message["causes"]])
        # One that does not answer is said, and is no reason to hide what the others know.
        done = self.why("instance", instance, *both, "--url", f"http://127.0.0.1:{free_port()}", check=False)
        self.assertEqual(1, done.returncode)
        self.assertIn("sutra why: http://127.0.0.1:", done.stderr)
        self.assertIn(OWNER, done.stdout)
        self.claim(instance, "null")
        wait_until(lambda: statuses(self.database).get("COMPLETED") == 1, 40, "the order to complete")

    def test_what_cannot_be_answered(self):
        self.replica({"admin.listen": f"127.0.0.1:{free_port()}"})
        done = self.why("message", "default/payments/nobody-knows", check=False)
        self.assertEqual(1, done.returncode)
        self.assertIn("unknown", done.stdout)
        done = self.why("instance", "00000000-0000-0000-0000-000000000001", check=False)
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("SUTRA.ADMIN.NOT_FOUND", done.stderr)
        self.assertEqual(2, self.why("weather", "tomorrow", check=False).returncode)
        # Listener and key as the configuration says.
        done = harness.sutra("why", "channel", "default/payments", "--config", self.engine.config_path,
                             env={"SUTRA_TEST_ADMIN_KEY": self.engine.KEY})
        self.assertIn("default/payments: ", done.stdout)
        done = harness.sutra("why", "message", "a/b/c", check=False,
                             env={"SUTRA_ADMIN_URL": self.url(), "SUTRA_ADMIN_KEY": "wrong"})
        self.assertEqual(1, done.returncode)
        self.assertIn("SUTRA.ADMIN.AUTH_MISSING", done.stderr)


if __name__ == "__main__":
    unittest.main()
