/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite for every segment executor: what the store promises, asked through store.h, so that PostgreSQL and memory are
 * held to the same behaviour.
 *
 *	static Suite *pg_suite(void) { Suite *s = suite_create("…"); store_suite_add(s, &backend); return s; }
 *
 * Life cycle: the backend outlives the run. Threads: the test's.
 */
#ifndef SUTRA_TESTS_SUPPORT_STORE_SUITE_H
#define SUTRA_TESTS_SUPPORT_STORE_SUITE_H

#include "store/store.h"
#include "tests/support/testing.h"

struct store_backend {
	/* Before each test: tables are made and empty. */
	void (*reset)(void *arg);
	/* An executor for a store; two may be open on the same tables at once. */
	struct executor *(*executor_new)(void *arg, uint32_t step_connections);
	/* After each test. */
	void (*done)(void *arg);
	void *arg;
};
void store_suite_add(Suite *suite, const struct store_backend *backend);

/* --- the harness, for other suites about the store --- */

/* A store with a loop that takes its answers. Not movable. */
struct store_rig {
	struct store *store;
	struct loop *reply_to;
	struct arena arena; /* of requests and answers */
	struct test_latch answered;
	int64_t sent;
};
/* `settings` NULL: batches of 256, lock timeout 100 ms, claims for a minute, outbox rows claimed by "boot-1". Waits until up. */
void store_rig_init(struct store_rig *rig, struct executor *executor,
		    const struct store_settings *settings);
void store_rig_done(struct store_rig *rig);
struct store_settings store_rig_settings(void);

/* Prepare requests; then send any number and wait for all. */
void rig_claim(struct store_rig *rig, struct store_claim *claim, const char *tenant,
	       struct id instance, const char *owner);
void rig_release(struct store_rig *rig, struct store_release *release, const char *tenant,
		 struct id instance, const char *owner);
void rig_spawn(struct store_rig *rig, struct store_commit *commit, const char *tenant,
	       struct id instance);
void rig_resume(struct store_rig *rig, struct store_commit *commit, const char *tenant,
		struct id instance, const char *owner, int64_t version);
void rig_letter(struct store_rig *rig, struct store_commit *commit, const char *tenant);
/* Parts of a commit, in the rig's arena. */
void commit_inbox(struct store_rig *rig, struct store_commit *commit, const char *event_id);
void commit_wait(struct store_rig *rig, struct store_commit *commit, uint32_t token,
		 const char *value, bool unique);
void commit_wait_end(struct store_rig *rig, struct store_commit *commit, uint32_t token,
		     const char *value, bool unique);
void commit_alias(struct store_rig *rig, struct store_commit *commit, const char *value,
		  bool unique);
void commit_alias_end(struct store_rig *rig, struct store_commit *commit, const char *value,
		      bool unique);
void commit_send(struct store_rig *rig, struct store_commit *commit, const char *channel,
		 const char *body);
void commit_dead_letter(struct store_rig *rig, struct store_commit *commit, struct id id,
			struct str detail);

/* Keeps a message on channel "orders", for keeper "boot-1" unless the commit names one. */
void commit_keep(struct store_rig *rig, struct store_commit *commit, struct id id,
		 struct id order_key, const char *body);
/* Ends one that `keeper` has. */
void commit_keep_end(struct store_commit *commit, struct id id, const char *keeper);

void commit_timer(struct store_rig *rig, struct store_commit *commit, uint32_t token, int64_t due_us);
void commit_timer_end(struct store_rig *rig, struct store_commit *commit, uint32_t token);

/* A row of the session: its own with the key "", or a call. */
void commit_session(struct store_rig *rig, struct store_commit *commit, const char *call_key, const char *channel, bool inbound,
		    bool counts, uint32_t token);
/* Of the commit's own instance, unless the commit has none: then of `instance`. */
void commit_session_end(struct store_rig *rig, struct store_commit *commit, enum store_end what, struct id instance,
			const char *call_key, uint32_t token);
void commit_slot(struct store_rig *rig, struct store_commit *commit, const char *pool, const char *call_key);
/* As commit_send, of a call that needs a slot. */
void commit_send_pooled(struct store_rig *rig, struct store_commit *commit, const char *channel, const char *pool,
			const char *call_key);

/* Sends; does not wait. */
void rig_send(struct store_rig *rig, struct store_request *request);
/* Sends all within one turn of the store's loop, so that they come to be one batch; does not wait. */
void rig_burst(struct store_rig *rig, struct store_request **requests, uint32_t count);
/* Waits until all that was sent is answered; fails the test after 20 seconds. */
void rig_wait(struct store_rig *rig);
enum store_outcome rig_run(struct store_rig *rig, struct store_request *request);

/*
 * One statement as a query. Arguments follow its signature: i, z: int64_t; u: struct id; t, b: const char * or NULL; o: int.
 * Array columns have the one entry given. `tenants` is ",a,"; NULL: scan role.
 */
const struct rows *rig_query(struct store_rig *rig, const char *tenants, bool writes,
			     enum statement_id statement, ...);

/* NULL if it was not available. */
const struct rows *rig_try_query(struct store_rig *rig, const char *tenants, bool writes, enum statement_id statement, ...);
/* Prepares a query of these calls, to be sent; as rig_query otherwise. */
void rig_query_init(struct store_rig *rig, struct store_query *query, struct segment_call *calls, uint32_t count, const char *tenants,
		    bool writes);
/* The pump: what POOL_SCAN answers; `more` (may be NULL) what POOL_MORE does. */
const struct rows *rig_pump(struct store_rig *rig, const char *pool, const char *owner, int64_t limit, bool *more);

/* The n-th id of a test: ascending. */
struct id test_id(uint32_t n);
struct store_stats rig_stats(struct store_rig *rig);

#endif
