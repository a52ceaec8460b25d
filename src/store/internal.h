/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's own parts and what they share. Everything here runs on the store's loop unless it says otherwise.
 *
 * A batch is the unit of work: requests of one kind that run as one segment. Its life:
 *
 *	queue ──form──► RUN ──committed──► answered
 *	                 │ ▲
 *	     gate failed │ │ the rest, at once                 (gates.c)
 *	                 ├─┴─► failed elements: answered, or probed, then answered or quarantined
 *	     lock, error ├───► halves, down to single elements: quarantined or rejected (gates.c); of caps and pools: takes.c
 *	        in doubt └───► terminate ► status ► committed: answered; aborted, unknown: RUN again   (doubt.c)
 *
 * Life cycle: batch_new … batch_end, which keeps the memory for the next one. Threads: the store's loop.
 */
#ifndef SUTRA_STORE_INTERNAL_H
#define SUTRA_STORE_INTERNAL_H

#include <pthread.h>

#include "base/map.h"
#include "store/store.h"

struct batch;

/* --- queue.c: requests that wait, a list a tenant, taken in turn --- */

struct queue {
	struct map tenants; /* struct tenant_queue */
	struct list ring;   /* those that are not empty; the next to serve first */
	uint32_t count;
};
void queue_init(struct queue *queue);
void queue_done(struct queue *queue); /* must be empty */
void queue_push(struct queue *queue, struct store_request *request);
void queue_push_front(struct queue *queue, struct store_request *request);
/* The oldest of the tenant whose turn it is, or NULL. */
struct store_request *queue_pop(struct queue *queue);
/* Without taking it. */
struct store_request *queue_peek(struct queue *queue);
struct str request_tenant(const struct store_request *request);

/* --- batch.c --- */

/* The gate keys of the batch that is being formed. */
struct key_set {
	struct key_slot {
		struct id key;
		uint32_t generation;
	} * slots;
	uint32_t slot_count; /* a power of two */
	uint32_t count;
	uint32_t generation;
};

struct outbox_ref {
	struct outbox_row *row;
	uint32_t ord;
};

struct batch {
	struct store *store;
	struct list all;  /* in store->batches, or store->spare */
	struct list link; /* in store->ready[class] */
	enum store_kind kind;
	struct store_request **elements; /* claims, commits: by instance id */
	uint32_t count;
	uint32_t cap;
	struct arena arena; /* of the segment; emptied before each run */
	struct segment own;
	struct segment *segment; /* `own`, or the query's */
	enum conn_class class;
	uint32_t conn;
	bool running;
	bool counted; /* in the statistics of batches */
	/* What the next run sends and what its answer means. */
	void (*build)(struct batch *batch);
	void (*finish)(struct batch *batch);
	struct loop_timer pause;
	uint32_t tries;      /* runs that did not take place */
	uint32_t lock_tries; /* runs in quarantine */
	bool quarantined;
	bool in_doubt;  /* being resolved: not answered before */
	bool doubtful;  /* may have committed already: gates are judged, not believed */
	bool committed; /* resolved: it did */
	/* What resolves doubt. */
	uint64_t xid;
	int64_t backend_pid;
	int64_t backend_start_us;
	char application[64];
	/* Of a doubtful element under judgement: what it is answered if it turns out not to have committed, and the gate that it failed;
	 * the gate also of those that may merely be locked, while that is looked at. */
	enum store_outcome verdict;
	enum gate verdict_gate;
	char verdict_text[256];
	/* Rows of the segment's OUTBOX_INSERT or OUTBOX_RENEW, in key order; in the arena. */
	struct outbox_ref *outbox;
	uint32_t outbox_count;
};

struct batch *batch_new(struct store *store, enum store_kind kind);
void batch_add(struct batch *batch, struct store_request *request);
/* Elements have been answered or moved. */
void batch_end(struct batch *batch);
/* Forms the next batch of this kind from its queue, ready to run; NULL if nothing waits. */
struct batch *batch_form(struct store *store, enum store_kind kind);
/* A new batch that goes on from where `batch` stands, without elements. */
struct batch *batch_split(struct batch *batch);
/* Runs as soon as a connection is free, before new batches; or after a while. */
void batch_ready(struct batch *batch);
void batch_ready_later(struct batch *batch, int64_t delay_us);
/* Sends what path_build makes; takes what it answers. */
void batch_path(struct batch *batch);
void key_set_done(struct key_set *set);

/* --- segment.c: segments of the path, and what their rows mean --- */

void segment_build(struct batch *batch);
/* Answers every element of a committed segment. */
void segment_take(struct batch *batch);
/* Begins the batch's segment: `call_max` calls, tenants of the elements, lock timeout. */
void segment_begin(struct batch *batch, uint32_t call_max);
/* Adds a call whose arrays have `count` entries, to be filled with the setters; scalars have one. */
struct column *segment_call(struct batch *batch, enum statement_id statement, uint32_t count);
/* The batch's outbox rows in key order, into batch->outbox. */
void segment_outbox_sort(struct batch *batch);
/* Sets `claimed` of the rows that `rows` name by (instance, channel, version, ordinal); column 4, if any, says whether. */
void segment_outbox_claimed(struct batch *batch, const struct rows *rows);

static inline void set_int(struct column *column, uint32_t i, int64_t value)
{
	((int64_t *)(uintptr_t)column->ints)[i] = value;
}
static inline void set_id(struct column *column, uint32_t i, struct id value)
{
	((struct id *)(uintptr_t)column->ids)[i] = value;
}
static inline void set_str(struct column *column, uint32_t i, struct str value)
{
	((struct str *)(uintptr_t)column->strs)[i] = value;
}
static inline void set_bool(struct column *column, uint32_t i, bool value)
{
	((bool *)(uintptr_t)column->bools)[i] = value;
}

/* --- check.c --- */

/* Whether the database can take the element's texts; else REJECTED or WAIT_NOT_UNIQUE with an error. @thread any */
enum store_outcome claim_check(const struct store_claim *claim, struct error *err);
enum store_outcome release_check(const struct store_release *release, struct error *err);
enum store_outcome probe_check(const struct store_probe *probe, struct error *err);
enum store_outcome resolve_check(const struct store_resolve *resolve, struct error *err);
enum store_outcome commit_check(const struct store_commit *commit, struct error *err);
/* The text itself, or a copy made valid: U+FFFD in the place of what is not. */
struct str text_clean(struct arena *arena, struct str text);
/* Bytes that the element adds to its batch. @thread any */
uint64_t commit_size(const struct store_commit *commit);

/* --- gates.c --- */

enum error_class {
	ERROR_CLASS_LOCK, /* met a lock or deadlock: smaller, then alone and patiently */
	ERROR_CLASS_AWAY, /* nothing can run at the moment */
	ERROR_CLASS_SERVER, /* the server's fault, maybe with one element: alone, but not the element's end */
	ERROR_CLASS_ELEMENT, /* an element cannot be stored */
};
enum error_class error_class(const char *sqlstate);
void gates_failed(struct batch *batch);
void gates_error(struct batch *batch);
/* The segment did not run. */
void gates_not_run(struct batch *batch);
/* A single element is locked by somebody: alone, with patience. */
void gates_quarantine(struct batch *batch);

/* --- takes.c --- */

/* Elements of a commit, whether or not they take something. */
static inline bool kind_commits(enum store_kind kind)
{
	return kind == STORE_COMMIT || kind == STORE_TAKE;
}
bool gate_is_take(enum gate gate);
/* The batch, all of whose elements failed the gate: answered with what is committed, or again. */
void takes_full(struct batch *batch, enum gate gate);
/* Whether new ones have to wait. */
bool takes_are_under_way(const struct store *store);
/* Deals with an error of a statement about caps or pools; false if it was none. */
bool takes_error(struct batch *batch);

/* --- doubt.c --- */

void doubt_begin(struct batch *batch);
/* The outcome cannot be found out: the batch runs again unchanged and its gates decide. */
void doubt_unknown(struct batch *batch);
/* All elements have committed. */
void doubt_committed(struct batch *batch);
/* One doubtful element has failed a gate or with an error: did it commit before? Else it gets `verdict`. */
void doubt_judge(struct batch *batch, enum store_outcome verdict, enum gate gate, const char *text);

/* --- floor.c --- */

/* All zero is empty. */
struct floors {
	struct floor_slot *slots; /* NULL until there is one */
};
/* The version below which the row's group has no rows; 0 = unknown. */
int64_t floor_get(struct floors *floors, const struct outbox_row *row);
void floor_set(struct floors *floors, struct id instance, struct str channel, int64_t version);
void floors_forget(struct floors *floors);

/* --- store.c --- */

struct store {
	struct runtime *runtime;
	struct loop *loop;
	struct executor *executor;
	struct store_settings settings;
	char *outbox_owner;
	bool stopping;
	bool step_up; /* a step connection is there, free or busy */
	bool dispatch_posted;
	struct task dispatch;
	struct loop_timer tick;
	struct queue queues[STORE_KIND_COUNT];
	struct list ready[CONN_CLASS_COUNT];
	struct list batches;
	struct list spare;
	uint32_t spare_count;
	bool *busy[CONN_CLASS_COUNT];
	uint32_t conn_counts[CONN_CLASS_COUNT];
	uint32_t turn; /* which kind of the path is formed next */
	struct key_set keys;
	struct floors floors;
	struct {
		_Atomic uint64_t segments, statements, transactions, elements[STORE_KIND_COUNT],
			batches[STORE_KIND_COUNT];
		_Atomic uint64_t gate_failures, doubts, quarantined;
		_Atomic uint64_t batch_histogram[10];
	} stats;
	pthread_mutex_t state_lock; /* leaf; guards the two below */
	bool up;
	char why[256];
};

void store_answer(struct store *store, struct store_request *request, enum store_outcome outcome);
void store_unavailable(struct store *store, struct store_request *request, const char *why);
void store_rejected(struct store *store, struct store_request *request, const char *why);
/* All elements, then the batch ends. */
void store_answer_all(struct batch *batch, enum store_outcome outcome, const char *why);
void store_dispatch_soon(struct store *store);
void store_count(_Atomic uint64_t *counter, uint64_t more);

#endif
