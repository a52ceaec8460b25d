/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the checker share. Life cycle and threads: as checker.h.
 */
#ifndef SUTRA_TESTS_SIM_CHECKER_PRIVATE_H
#define SUTRA_TESTS_SIM_CHECKER_PRIVATE_H

#include "base/map.h"
#include "store/store.h"
#include "tests/sim/checker.h"

struct seen_instance {
	int64_t version;
};

/* What one replica was refused of one instance. */
struct seen_refusals {
	int64_t since_us; /* the second that is counted */
	uint64_t count;
	/* When it began. */
	uint64_t held;
	int64_t version;
};

/* A message that a commit has asked to be sent. */
struct seen_send {
	struct id instance;
	char channel[32];
	int64_t version, ordinal;
	uint32_t copies; /* on its topic */
};

/* An early message that somebody waits for. */
struct seen_pair {
	struct id message;
	int64_t since_us, seen_us;
};
#define SEEN_PAIRS_MAX 256

struct checker {
	struct sim *sim;
	struct load *load;
	struct sim_database *database;
	struct map inbox_keys; /* inbox key → load_event */
	struct map instances;  /* id → seen_instance */
	struct map sends;      /* outbox key → seen_send */
	struct map refusals;   /* id and replica → seen_refusals */
	bool claim_is_gone;    /* of what is about to run: somebody commits without his claim */
	uint64_t commits, most_refused, kept;
	struct seen_pair pairs[SEEN_PAIRS_MAX];
	uint32_t pair_count;
};

static inline bool event_is_done(const struct load_event *event)
{
	return event->effect || event->dead;
}

/* NULL: nobody's. */
struct load_event *checker_event_find(struct checker *checker, struct str id);
struct load_event *checker_event_of_body(struct checker *checker, struct str channel,
					 struct str body);
/* A copy of a message has been sent. `where`: its channel. */
void checker_sent(struct checker *checker, const char *where, struct str key);
/* checker_rabbit.c: it has taken effect. */
void checker_delivery_order(struct checker *checker, const struct load_event *event,
			    const struct process *process);
/* checker_early.c: looks for early messages that somebody waits for, and nobody brings to him. */
void checker_early(struct checker *checker);
/* NULL: a record of nobody's. */
struct load_event *checker_event_of(struct checker *checker, const char *topic, int32_t partition,
				    int64_t offset);

#endif
