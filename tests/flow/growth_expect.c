/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table: what each statement goes by. A new statement gets its line here, or the test of growth fails and says which line is
 * missing. What has no index says why it needs none: because it does not read what grows.
 */
#include "tests/flow/growth.h"

#define T   "growth_tenant(m)"
#define ID  "growth_id(m)"
#define NEW "growth_id(m + 50000000)"
#define KEY(kind) "growth_key('" kind "', m)"
#define FREE "growth_tenant(m + 60)", "growth_id(m + 60)"
/* The key of outbox row m, which `live` has claimed, and of a new one. */
#define ROW	T, ID, "'c'", "1", "0"
#define NEW_ROW T, NEW, "'c'", "2", "0"
#define MINUTE	"60000"
#define DAY	"86400000"
#define PAGE	"batch"
#define NONE	"'00000000-0000-0000-0000-000000000000'"

#define INSERTS "it inserts and reads nothing"

static const struct growth_expectation expectations[STATEMENT_COUNT] = {
	/* Claims. */
	[STATEMENT_CLAIM] = {.index = {"instance_pkey"}, .args = {"n", FREE, "'lane'", MINUTE}},
	[STATEMENT_RELEASE] = {.index = {"instance_pkey"}, .args = {"n", T, ID, "'me'"}},

	/* Resolve. */
	[STATEMENT_INBOX_PROBE] = {.index = {"inbox_pkey"}, .args = {"n", T, KEY("i")}},
	[STATEMENT_WAIT_PROBE] = {.index = {"wait_pkey"}, .args = {"n", T, KEY("w")}},
	[STATEMENT_FAILED_PROBE] = {.index = {"alias_pkey", "instance_pkey"}, .args = {"n", T, KEY("a")}},
	[STATEMENT_SESSION_FIND] = {.index = {"alias_pkey", "channel_session_pkey"}, .args = {"n", T, KEY("a")}},
	[STATEMENT_EARLY_PROBE] = {.index = {"early_pkey", "inbox_message_pkey"}, .args = {"n", T, KEY("e")}},
	[STATEMENT_KEPT_PROBE] = {.index = {"inbox_message_order"}, .args = {"n", T, KEY("k"), "1"}},

	/* The step. */
	[STATEMENT_FENCE_UPDATE] = {.index = {"instance_pkey"},
				    .args = {"n", T, ID, "'me'", "1", "1", "false", "null", "null", "'\\x00'"}},
	[STATEMENT_KEPT_DELETE] = {.index = {"inbox_message_pkey"}, .args = {"n", T, ID, "'dead'"}},
	[STATEMENT_SCHEDULE_ADVANCE] = {.index = {"timer_schedule_pkey"}, .args = {"n", T, ID, "'2026-01-01 00:00Z'", "now()", "1"}},
	[STATEMENT_TIMER_DELETE] = {.index = {"timer_pkey"}, .args = {"n", T, ID, "1"}},
	[STATEMENT_TIMER_INSERT] = {.none = INSERTS, .args = {"n", T, NEW, "1", "'n'", "'d'", "now()"}},
	[STATEMENT_SCHEDULE_PROBE] = {.index = {"timer_schedule_pkey"}, .args = {"n", T, ID}},
	[STATEMENT_INBOX_INSERT] = {.index = {"inbox_pkey"}, .args = {"n", T, KEY("new"), ID}},
	[STATEMENT_WAIT_DELETE] = {.index = {"wait_pkey"}, .args = {"n", T, KEY("w"), KEY("s")}},
	[STATEMENT_ALIAS_DELETE] = {.index = {"alias_pkey"}, .args = {"n", T, KEY("a"), ID}},
	[STATEMENT_ALIAS_INSERT] = {.none = INSERTS, .args = {"n", T, KEY("new"), ID, ID, "'a'", "'v'"}},
	[STATEMENT_ALIAS_INSERT_UNIQUE] = {.index = {"alias_pkey"}, .args = {"n", T, KEY("new"), NONE, ID, "'a'", "'v'"}},
	[STATEMENT_WAIT_INSERT] = {.none = INSERTS, .args = {"n", T, KEY("new"), KEY("s"), ID, "1", "'n'", "'c'", "'d'"}},
	[STATEMENT_WAIT_INSERT_UNIQUE] = {.index = {"wait_pkey"},
					  .args = {"n", T, KEY("new"), NONE, ID, "1", "'n'", "'c'", "'d'"}},
	[STATEMENT_INSTANCE_INSERT] = {.index = {"instance_pkey"},
				       .args = {"n", T, NEW, "'d'", "'p'", "1", "1", "now()", "false", "null", "null",
						"'\\x00'"}},
	[STATEMENT_OUTBOX_WITHDRAW] = {.index = {"outbox_entry_pkey"}, .args = {"n", ROW}},
	[STATEMENT_OUTBOX_INSERT] = {.index = {"outbox_entry_pkey"},
				     .args = {"n", NEW_ROW, NEW, "'d'", "'c'", "'d'", "null", "null", "null", "null", "null",
					      "false", "0", "'live'"}},
	[STATEMENT_OUTBOX_INSERT_ONCE] = {.index = {"outbox_entry_pkey"},
					  .args = {"n", NEW_ROW, NEW, "'d'", "'c'", "'d'", "null", "null", "null", "null",
						   "null", "false", "0", "'live'"}},
	[STATEMENT_DEAD_LETTER_INSERT] = {.index = {"dead_letter_pkey"},
					  .args = {"n", T, NEW, "'c'", "'e'", "'s'", "'t'", "'C'", "'d'", ID, "null", "null",
						   "null", "null"}},
	[STATEMENT_DEAD_LETTER_REPLACE] = {.index = {"dead_letter_pkey"},
					   .args = {"n", T, ID, "'c'", "'e'", "'s'", "'t'", "'C'", "'d'", ID, "null", "null",
						    "null", "null"}},
	[STATEMENT_DEAD_LETTER_DELETE] = {.index = {"dead_letter_pkey"}, .args = {"n", T, ID}},
	[STATEMENT_KEPT_INSERT] = {.index = {"inbox_message_pkey"},
				   .args = {"n", T, NEW, KEY("new"), "'c'", "'overflow'", "'live'", "'s'", "'\\x00'", "'\\x00'",
					    "null"}},
	[STATEMENT_EARLY_DELETE] = {.index = {"early_message"}, .args = {"n", T, ID}},
	[STATEMENT_EARLY_MARK] = {.index = {"inbox_message_pkey"}, .args = {"n", T, ID, "'dead'", "now()"}},
	[STATEMENT_EARLY_INSERT] = {.index = {"early_pkey", "inbox_message_pkey"}, .args = {"n", T, KEY("new"), ID}},
	[STATEMENT_FENCE_PROBE] = {.index = {"instance_pkey"}, .args = {"n", T, ID}},
	[STATEMENT_KEPT_OWNER] = {.index = {"inbox_message_pkey"}, .args = {"n", T, ID}},

	/* Sessions and slots, of the step. */
	[STATEMENT_SESSION_LOCK] = {.index = {"channel_session_pkey"}, .args = {"n", T, ID}},
	[STATEMENT_SESSION_INSERT] = {.index = {"channel_session_pkey"},
				      .args = {"n", T, ID, "'out'", "null", "false", "false", "2"}},
	[STATEMENT_SESSION_END] = {.index = {"channel_session_pkey", "channel_session_open"},
				   .args = {"n", T, ID, "1 + n % 4", "'out'", "1"}},
	[STATEMENT_OUTBOX_INSERT_POOLED] = {.index = {"outbox_entry_pkey"},
					    .args = {"n", NEW_ROW, NEW, "'d'", "'c'", "'d'", "null", "null", "null", "null",
						     "null", "false", "'p1'", "'out'", "'{}'"}},
	[STATEMENT_OUTBOX_POOL_LOCK] = {.index = {"outbox_entry_call"}, .args = {"n", T, ID}},
	[STATEMENT_OUTBOX_UNPOOL] = {.index = {"outbox_entry_call", "channel_session_pkey", "capacity_slot_pkey"}, .args = {"n", T, ID}},
	[STATEMENT_SLOT_DELETE] = {.index = {"capacity_slot_pkey", "channel_session_pkey"}, .args = {"n", T, ID}},
	[STATEMENT_CAP_LOCK] = {.none = "no table", .args = {"n"}},
	[STATEMENT_CAP_CHANNEL] = {.index = {"channel_session_count"},
				   .args = {"n", "'big'", "'c1'", "400", "true"},
				   .rows_each = 300,
				   .rows_fixed = 1000},
	[STATEMENT_CAP_TENANT] = {.index = {"channel_session_count"},
				  .args = {"n", "'tiny'", "400", "true"},
				  .rows_each = 300,
				  .rows_fixed = 1000},
	[STATEMENT_CAP_PROBE] = {.index = {"channel_session_count"},
				 .args = {"n", "'big'", "case when n % 2 = 0 then 'c1' end", "10"},
				 .rows_each = 12},
	[STATEMENT_POOL_LOCK] = {.none = "rows of the table of pools", .args = {"'p' || n % 100"}},
	[STATEMENT_SLOT_TAKE] = {.index = {"capacity_slot_held", "capacity_slot_pkey"},
				 .args = {"n", T, "'p1'", NEW, "'in'", "true"},
				 .rows_each = 300,
				 .rows_fixed = 1200,
				 .blocks_fixed = 1500},
	[STATEMENT_POOL_PROBE] = {.index = {"capacity_slot_held"}, .args = {"n", "'p1'"}, .rows_fixed = 1200, .blocks_fixed = 1500},

	/* Capacity pools. */
	[STATEMENT_POOL_PUT] = {.none = "a row of the table of pools", .args = {"'p1'", "2", "0", "0", "null"}},
	[STATEMENT_POOL_WAITING] = {.index = {"outbox_entry_pool"}, .scan = true, .args = {"'p' || n % 100"}},
	[STATEMENT_POOL_LOCK_ONE] = {.none = "a row of the table of pools", .scan = true, .args = {"'p1'"}},
	[STATEMENT_POOL_SCAN] = {.index = {"outbox_entry_pool", "outbox_entry_pkey", "capacity_slot_held", "capacity_slot_pkey",
					   "channel_session_pkey", "outbox_entry_call"},
				 .scan = true,
				 .args = {"'p1'", "'boot'", PAGE},
				 .rows_fixed = 1200,
				 .blocks_fixed = 1500},
	[STATEMENT_POOL_MORE] = {.index = {"outbox_entry_pool", "outbox_entry_pkey", "capacity_slot_held"},
				 .scan = true,
				 .args = {"'p1'"},
				 .rows_fixed = 1200,
				 .blocks_fixed = 1500},
	[STATEMENT_POOL_LIST] = {.index = {"outbox_entry_pool", "capacity_slot_held"},
				 .scan = true,
				 .args = {PAGE},
				 .rows_each = 120,
				 .rows_fixed = 110000,
				 .blocks_fixed = 120000},
	[STATEMENT_SLOT_LIST] = {.index = {"capacity_slot_held"}, .args = {"'p1'", "'INBOUND'", NONE, "''", PAGE}},
	[STATEMENT_SLOT_SWEEP] = {.index = {"capacity_slot_pkey", "instance_pkey", "channel_session_pkey"},
				  .scan = true,
				  .args = {ID, "'p'", "''", PAGE}},
	[STATEMENT_POOL_SWEEP] = {.index = {"outbox_entry_call", "outbox_entry_pkey", "channel_session_pkey", "capacity_slot_pkey"},
				  .scan = true,
				  .args = {ID, "''", PAGE}},
	[STATEMENT_POOL_CHECK] = {.index = {"capacity_slot_pkey", "channel_session_pkey", "outbox_entry_call", "instance_pkey",
					    "capacity_slot_held"},
				  .scan = true,
				  .args = {ID, PAGE}},
	[STATEMENT_RATE_TAKE] = {.none = "a row of the table of permits, which has one a tenant", .args = {"'big'", "10", "1"}},

	/* The outbox. */
	[STATEMENT_OUTBOX_SCAN] = {.index = {"outbox_entry_due", "outbox_entry_pkey"},
				   .scan = true,
				   .from_start = "outbox_entry_due",
				   .args = {"'boot'", PAGE},
				   .rows_fixed = 2000},
	[STATEMENT_OUTBOX_SWEEP] = {.index = {"outbox_entry_pkey"},
				    .scan = true,
				    .args = {NONE, "''", "0", "0", PAGE, MINUTE}},
	[STATEMENT_OUTBOX_LOAD] = {.index = {"outbox_entry_pkey"}, .args = {ROW, "'live'"}},
	[STATEMENT_OUTBOX_DELETE] = {.index = {"outbox_entry_pkey"}, .args = {ROW, "'live'"}},
	[STATEMENT_OUTBOX_CLAIM_NEXT] = {.index = {"outbox_entry_pkey"},
					 .args = {"growth_tenant(m + 1)", "growth_id(m + 1)", "'c'", "'boot'"}},
	[STATEMENT_OUTBOX_FREE_NEXT] = {.index = {"outbox_entry_pkey"}, .args = {T, ID, "'c'"}},
	[STATEMENT_OUTBOX_FAIL] = {.index = {"outbox_entry_pkey"},
				   .args = {ROW, "1", "1000", "null", "false", "false", "'live'"}},
	[STATEMENT_OUTBOX_RENEW] = {.index = {"outbox_entry_pkey"}, .args = {ROW, "'live'"}},
	[STATEMENT_OUTBOX_RELEASE] = {.index = {"outbox_entry_pkey"}, .args = {ROW, "'live'"}},

	[STATEMENT_OUTBOX_REARM] = {.index = {"outbox_entry_idle", "outbox_entry_pkey"},
				    .args = {"growth_key('o', m + 1)", "1"}},

	/* Kept messages. */
	[STATEMENT_KEPT_LOAD] = {.index = {"inbox_message_order"}, .args = {T, KEY("k"), "'dead'"}},
	[STATEMENT_KEPT_RECOVER] = {.index = {"inbox_message_keeper"}, .args = {"'big'", "'c'", "'boot'", PAGE}},
	[STATEMENT_KEPT_TAKE] = {.index = {"inbox_message_order"}, .args = {KEY("k"), "'big'", "'c'", "'boot'"}},
	[STATEMENT_KEPT_RELEASE] = {.index = {"inbox_message_keeper"}, .args = {"'big'", "'c'", "'dead'", PAGE}},
	[STATEMENT_KEPT_OWN] = {.index = {"inbox_message_keeper"}, .args = {"'big'", "'c'", "'dead'", "0", PAGE}},
	[STATEMENT_KEPT_LIST] = {.index = {"inbox_message_pkey"}, .args = {"null", "'none'", NONE, "40 + batch", PAGE}},
	[STATEMENT_KEPT_COUNTS] = {.index = {"inbox_message_keeper"},
				   .scan = true,
				   .from_start = "inbox_message_keeper",
				   .args = {PAGE},
				   .rows_each = 60,
				   .blocks_fixed = 1500},

	/* Timers. */
	[STATEMENT_TIMER_DUE] = {.index = {"timer_due"}, .scan = true, .args = {"'epoch'", NONE, "0", PAGE}},
	[STATEMENT_TIMER_NEXT] = {.index = {"timer_due"}, .scan = true},
	[STATEMENT_TIMER_COUNTS] = {.index = {"timer_due"}, .scan = true, .args = {"1000", PAGE}},
	[STATEMENT_TIMER_DROP] = {.index = {"timer_pkey", "instance_pkey"},
				  .args = {T, ID, "1", "(select t.due_at from sutra.timer t where t.instance_id = growth_id(m))", "1"}},
	[STATEMENT_TIMER_OF] = {.index = {"timer_pkey"}, .args = {ID}},
	[STATEMENT_TIMER_LIST] = {.index = {"timer_due"}, .args = {"'epoch'", NONE, "0", PAGE}},
	[STATEMENT_SCHEDULE_PUT] = {.index = {"timer_schedule_pkey"},
				    .args = {ID, T, "'d1'", "'p'", "'n'", "'R/PT1M'", "now()", "-1"}},
	[STATEMENT_SCHEDULE_LIST] = {.index = {"timer_schedule_pkey"}, .args = {NONE, PAGE}},

	/* Leases. */
	[STATEMENT_LEASE_ACQUIRE] = {.none = "one row of the table of leases", .args = {"'r'", "'h'", MINUTE}},
	[STATEMENT_LEASE_RELEASE] = {.none = "one row of the table of leases", .args = {"'r'", "'h'"}},
	[STATEMENT_LEASE_PURGE] = {.none = "a row for each role and each replica of the last day, once in a sweep",
				   .args = {"'keeper:'", DAY}},
	[STATEMENT_LEASE_LIST] = {.none = "a row for each role and each replica of the last day, when an operator asks"},

	/* Sweeps. */
	[STATEMENT_CLAIM_SWEEP] = {.index = {"instance_pkey"}, .scan = true, .args = {ID, PAGE, MINUTE}},
	[STATEMENT_INSTANCE_EXPIRED] = {.index = {"instance_pkey"}, .scan = true, .args = {ID, PAGE, DAY}},
	[STATEMENT_INSTANCE_DELETE] = {.index = {"instance_pkey", "channel_session_pkey", "capacity_slot_pkey"}, .args = {"growth_tenant(m - 1)", "growth_id(m - 1)"}},
	[STATEMENT_DEAD_LETTER_PURGE] = {.index = {"dead_letter_age"}, .scan = true, .args = {PAGE, DAY}},
	[STATEMENT_INBOX_PURGE] = {.index = {"inbox_age"}, .scan = true, .args = {PAGE, DAY}},

	/* Deployments. */
	[STATEMENT_DEPLOYMENT_PUT] = {.none = "one row of the table of deployments",
				      .args = {"'x'", "'big'", "'m'", "'1'", "'ACTIVE'", "null"}},
	[STATEMENT_DEPLOYMENT_LIST] = {.none = "a row for each version of a package"},
	[STATEMENT_DEPLOYMENT_ARCHIVE] = {.none = "one row of the table of deployments", .args = {"'d0'"}},
	[STATEMENT_DEPLOYMENT_PINS] = {.none = "rows of the table of deployments", .args = {"'d' || n", "true"}},
	[STATEMENT_OUTBOX_PINS] = {.index = {"outbox_entry_pkey"},
				   .scan = true,
				   .args = {NONE, "''", "0", "0", PAGE}},

	/* Lists. */
	[STATEMENT_INSTANCE_LIST] = {.index = {"instance_pkey"}, .args = {"3", "true", "'none'", NONE, "40 + batch", PAGE}},
	[STATEMENT_ALIAS_PROBE] = {.index = {"alias_pkey"}, .args = {T, KEY("a")}},
	[STATEMENT_INSTANCE_GET] = {.index = {"instance_pkey"}, .args = {ID}},
	[STATEMENT_OUTBOX_LIST] = {.index = {"outbox_entry_pkey"}, .args = {NONE, "''", "0", "0", PAGE}},
	[STATEMENT_DEAD_LETTER_LIST] = {.index = {"dead_letter_pkey"}, .args = {NONE, PAGE}},
	[STATEMENT_DEAD_LETTER_REPLAY] = {.index = {"dead_letter_pkey", "inbox_message_pkey"},
					  .args = {ID, "0", NEW, NEW, "'s'", "'\\x00'"}},
	[STATEMENT_DEAD_LETTER_GET] = {.index = {"dead_letter_pkey"}, .args = {ID}},

	/* Doubt. */
	[STATEMENT_BACKEND_TERMINATE] = {.none = "no table", .args = {"0", "now()", "'none'"}},
	[STATEMENT_XACT_STATUS] = {.none = "no table", .args = {"1"}},
	[STATEMENT_PING] = {.none = "no table"},
};

const struct growth_expectation *growth_expectation_of(enum statement_id id)
{
	const struct growth_expectation *expectation = &expectations[id];

	return expectation->index[0] || expectation->none ? expectation : NULL;
}
