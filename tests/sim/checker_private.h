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
	int64_t since_us; /* when it came to that */
	bool failed;	  /* it is */
	uint32_t items;	  /* that it has said */
	int64_t heard;	  /* offset of the latest news that it has taken, and one */
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

/* A timer that a commit has set. */
struct seen_timer {
	struct id instance;
	int64_t due_us;
	uint32_t fires;
};

/* A time of the start timer that has begun an instance. */
struct seen_tick {
	int64_t due_us;
	uint32_t sends; /* of its instance */
};
#define SEEN_TICKS_MAX 16

/* One target of the news. */
struct seen_target {
	struct id row;
	const struct load_event *event;
	struct id instance; /* all zero: a new one */
	bool done;
	uint32_t heard;
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
	struct seen_timer *timers;
	uint32_t timer_count;
	uint64_t reminders, early_met;
	struct seen_tick ticks[SEEN_TICKS_MAX];
	uint32_t tick_count;
	int64_t next_tick_us, ticks_left, tick_seen_us; /* by the last commit of one, and when that was */
	uint64_t ticks_coalesced;
	bool clocks_differ;
	struct seen_target *targets;
	uint32_t target_count;
	uint64_t heard, read, targets_passed, failures, restores;
	int64_t read_to; /* offset of the latest news that one began with, and one */
	int64_t late_since_us, late_seen_us; /* since when a timer that is long due stays, and when that was seen last */
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
/* checker_timers.c: timers that are set, those that fire, and those that do not. */
void checker_timers_set(struct checker *checker, const struct segment_call *call);
void checker_timer_fired(struct checker *checker, struct id instance, struct str body);
void checker_timers_late(struct checker *checker);
/* The start timer is moved on; its instance says so; at the end; whether it has no more times. */
void checker_ticks_advance(struct checker *checker, const struct segment_call *call);
void checker_tick_sent(struct checker *checker, struct str body);
/* checker_failures.c: one begins; a step of any instance and with what status; at the end. */
void checker_frail(struct checker *checker, const struct load_event *event, struct id instance);
void checker_failure(struct checker *checker, struct id instance, int64_t status);
void checker_failures_end(struct checker *checker);
/* checker_boxes.c: an item has had its effect on the instance; a box says how many it has; at the end; steps of all boxes. */
void checker_item(struct checker *checker, const struct load_event *event, struct id instance);
void checker_packed(struct checker *checker, struct id instance, struct str body);
void checker_boxes_end(struct checker *checker);
int64_t checker_box_steps(const struct checker *checker);
/* checker_news.c: targets that are kept and removed; what they say; when all of a commit has been seen; at the end. */
void checker_targets_kept(struct checker *checker, const struct segment_call *call);
void checker_targets_removed(struct checker *checker, const struct segment *segment, const struct segment_call *call);
void checker_news_heard(struct checker *checker, struct id instance, struct str body);
void checker_news_read(struct checker *checker, struct str body);
void checker_news_commit(struct checker *checker);
void checker_news_end(struct checker *checker);
void checker_ticks_end(struct checker *checker);
bool checker_ticks_are_over(const struct checker *checker);
/* checker_early.c: looks for early messages that somebody waits for, and nobody brings to him. */
void checker_early(struct checker *checker);
/* NULL: a record of nobody's. */
struct load_event *checker_event_of(struct checker *checker, const char *topic, int32_t partition,
				    int64_t offset);

#endif
