/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path without a broker: real lanes, store (memory) and outbox over a package, with consumers and publishers that the
 * test holds in its hands.
 *
 * Life cycle: flow_fixture_new, flow_fixture_free (stops everything; asserts that nothing is left unsettled).
 * Threads: the test's; everything else runs on real loops.
 */
#ifndef SUTRA_TESTS_SUPPORT_FLOW_FIXTURE_H
#define SUTRA_TESTS_SUPPORT_FLOW_FIXTURE_H

#include <pthread.h>

#include "flow/delivery.h"
#include "outbox/outbox.h"

#define FLOW_FIXTURE_MOST 4096

/* How a message was settled, in order. */
struct flow_settled {
	char source[64];
	enum settle how;
};

/* A publication as it arrived at the publisher, in order. */
struct flow_published {
	char destination[64];
	char key[128];
	char message_id[64];
	char body[1024];
	char traceparent[64];
};

struct flow_fixture_settings {
	const char *package; /* relative to the source tree; default examples/quickstart/package */
	uint32_t lanes;	     /* default 4 */
	uint32_t queue_capacity;
	int64_t unmatched_hold_ms; /* default 30 s */
	int64_t max_attempts;	   /* of the outbox; default for ever */
	struct executor *executor; /* default: memory; owned by the fixture's store */
	int64_t claim_timeout_ms;  /* of instances; default a minute */
	struct intake_settings intake; /* bounds of holds and the like; names, backoff and unmatched_hold_ms are the fixture's */
	const char *keeper;	   /* default "fixture" */
	uint32_t failure_attempts;
};

struct flow_fixture {
	struct runtime *runtime;
	struct memory_database *database;
	struct store *store;
	struct outbox *outbox;
	struct wake *wake;
	struct lane_set *lanes;
	struct deployment *deployment;
	struct view *view;
	const char *package;
	struct loop *loop; /* of the consumers and the publisher */
	struct flow_fixture_channel {
		struct consumer consumer;
		struct intake *intake;
		struct flow_fixture *fixture;
		uint32_t out; /* delivered and not settled */
		bool stopping;
		bool stopped; /* atomic */
		struct task end;
	} channels[8];
	uint32_t channel_count;
	struct publisher publisher;
	pthread_mutex_t lock;
	struct flow_settled settled[FLOW_FIXTURE_MOST];
	uint32_t settled_count;
	struct flow_published published[FLOW_FIXTURE_MOST];
	uint32_t published_count;
	uint32_t publish_failures; /* so many publications are answered RETRY first */
	uint32_t next_offset;
};

struct flow_fixture *flow_fixture_new(const struct flow_fixture_settings *settings);
void flow_fixture_free(struct flow_fixture **fixture);

/* Delivers a message: `order_key` NULL = none, `id` NULL = the identity alone. Returns its source text, borrowed until free. */
void flow_fixture_send(struct flow_fixture *fixture, const char *channel, const char *order_key, const char *id,
		       const char *body);
/* As flow_fixture_send with bytes and a traceparent header. */
void flow_fixture_send_message(struct flow_fixture *fixture, const char *channel, struct message *message);
struct message *flow_fixture_message(struct flow_fixture *fixture, const char *order_key, const char *id, struct str body);
/* Loads the package anew and flips lanes and outbox to it; the old deployment is gone when it returns. */
void flow_fixture_reload(struct flow_fixture *fixture);
/* The partition is taken away: every unsettled message of the channel. */
void flow_fixture_revoke(struct flow_fixture *fixture, const char *channel);
/* Those of one lease. */
void flow_fixture_revoke_lease(struct flow_fixture *fixture, const char *channel, void *lease);
/* Stops consuming, on all channels; what is left of the fixture serves queries and claims. */
void flow_fixture_stop(struct flow_fixture *fixture);

/* Waits until so many are settled, or published, in all; false after 10 s. */
bool flow_fixture_wait_settled(struct flow_fixture *fixture, uint32_t count);
bool flow_fixture_wait_published(struct flow_fixture *fixture, uint32_t count);
bool flow_fixture_wait_held(struct flow_fixture *fixture, const char *channel, uint64_t count);
const struct intake_stats *flow_fixture_stats(struct flow_fixture *fixture, const char *channel);

/* Runs one statement and returns its rows, in `arena`; all tenants of the package. */
struct rows flow_fixture_query(struct flow_fixture *fixture, struct arena *arena, enum statement_id statement,
			       const struct column *params, bool scan);
/* The only instance there is. */
struct id flow_fixture_only_instance(struct flow_fixture *fixture, int64_t *version);
/* Somebody else claims the instance, or gives it back. */
enum store_outcome flow_fixture_other_claims(struct flow_fixture *fixture, struct id instance, bool release);
/* Commits all of it but base and tenant, which are the fixture's. */
enum store_outcome flow_fixture_commit(struct flow_fixture *fixture, const struct store_commit *commit);
/* Messages that the database keeps, by id. */
struct rows flow_fixture_kept(struct flow_fixture *fixture, struct arena *arena);
uint32_t flow_fixture_count_kept(struct flow_fixture *fixture);
/* How many instances have this status. */
uint32_t flow_fixture_count_instances(struct flow_fixture *fixture, enum instance_status status);
uint32_t flow_fixture_count_dead_letters(struct flow_fixture *fixture, const char *code);
uint32_t flow_fixture_count_outbox(struct flow_fixture *fixture);

#endif
