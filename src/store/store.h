/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: what the engine asks of its database. Requests are sent from any loop and answered by a task on the loop
 * that the request names; between the two they belong to the store. Requests of one kind that wait at the same time are
 * run as one set-based segment (group commit); each keeps its own outcome.
 *
 * Life cycle: store_new, store_start; store_stop (answers everything that waits, and what comes later, with
 * STORE_UNAVAILABLE); store_free once nobody sends any more.
 * Threads: requests from any thread; start and stop from main.
 */
#ifndef SUTRA_STORE_STORE_H
#define SUTRA_STORE_STORE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/instance.h"
#include "store/executor.h"

struct store;

/* The longest text in an indexed column. */
#define STORE_TEXT_MAX 512

enum store_outcome {
	STORE_OK,
	STORE_REFUSED, /* claim: held by somebody, locked, terminal or absent. Nothing was read beyond the claim */
	STORE_DUPLICATE, /* commit: the event had its effect before (committed) */
	STORE_FENCED,    /* commit: owner or version has changed (committed): nothing was written */
	STORE_ALIAS_CONFLICT,  /* commit: a unique alias is taken */
	STORE_WAIT_NOT_UNIQUE, /* commit: a unique wait is taken */
	STORE_KEPT_LOST, /* commit: the kept message is gone, or another keeper's (committed): nothing was written */
	STORE_SCHEDULE_MOVED, /* commit: the start timer is not due as expected any more (committed): nothing was written */
	/* Commit of a spawn: its channel, its tenant or a pool has no room (committed): nothing was written, and `full` says more. */
	STORE_CHANNEL_FULL,
	STORE_TENANT_FULL,
	STORE_POOL_FULL,
	STORE_REJECTED,        /* the database cannot take this element, ever: err */
	STORE_UNAVAILABLE,     /* nothing was written; the database is away */
};

enum store_kind {
	STORE_CLAIM,
	STORE_RELEASE,
	STORE_RESOLVE,
	STORE_COMMIT,
	STORE_QUERY, /* everything that is not on the path: one segment as given */
	STORE_PROBE,
	STORE_TAKE, /* commits that pass a cap or take a slot: set by store_commit */
	STORE_KIND_COUNT
};

/* The head of every request. */
struct store_request {
	enum store_kind kind;  /* set by the call */
	struct loop *reply_to; /* where `done` is posted */
	struct task done;      /* set `done.run` before sending */
	enum store_outcome outcome;
	struct error error;  /* for REJECTED and UNAVAILABLE */
	struct arena *arena; /* results go here; the requester's, lent to the store until done */
	/* The store's. */
	struct task intake;
	struct list link;
	struct store *store;
	uint64_t size; /* bytes, for batch_max_bytes */
	int64_t sent_us;
};

/* Claim and load: one statement. */
struct store_claim {
	struct store_request base;
	struct str tenant;
	struct id instance;
	struct str owner; /* <host>-<pid>-<8 hex>-s<lane> */
	/* Out, when OK. */
	int64_t version;
	enum instance_status status;
	struct str deployment;
	struct str process;
	struct str snapshot;
};
void store_claim(struct store *store, struct store_claim *claim);

/* Gives a claim back without a commit. The answer comes when it is done or cannot be (the timeout then frees it). */
struct store_release {
	struct store_request base;
	struct str tenant;
	struct id instance;
	struct str owner;
};
void store_release(struct store *store, struct store_release *release);

/* A live wait that a key leads to. */
struct store_wait {
	uint32_t key; /* index into the request's keys */
	struct id instance;
	uint32_t token;
	struct str node;
	struct str deployment;
	int64_t created_us;
};

/* Looks a message up: is its event known, who waits for it? Unlocked; the gates of the commit decide. */
struct store_resolve {
	struct store_request base;
	struct str tenant;
	const struct id *inbox_keys;
	uint32_t inbox_key_count;
	const struct id *wait_keys;
	uint32_t wait_key_count;
	/* Are there kept messages of this order key before `kept_before`? None = not asked. */
	struct id order_key;
	int64_t kept_before; /* the message's own seq if it is kept; else INT64_MAX */
	/* Does a FAILED instance carry one of these aliases? */
	const struct id *alias_keys;
	uint32_t alias_key_count;
	/* Which instances whose session is open carry one of these aliases? */
	const struct id *session_keys;
	uint32_t session_key_count;
	/* Out, when OK. */
	struct id *sessions; /* such instances, each once */
	uint32_t session_count;
	struct id *failed; /* such instances, by alias */
	uint32_t failed_count;
	bool kept_ahead;
	bool duplicate;
	struct id duplicate_instance; /* none if the effect had no instance */
	struct store_wait *waits;     /* by key, then oldest first */
	uint32_t wait_count;
};
void store_resolve(struct store *store, struct store_resolve *resolve);

/* An early message that looks for a wait of one of the keys. */
struct store_early {
	struct id order_key;
	struct str channel;
	struct str keeper; /* absent = nobody's */
};

/*
 * What has come before the waits that a commit has just added? To be asked once the commit is answered: whoever keeps an early message
 * looks for waits after its own commit, so that one of the two sees the other (a look inside either transaction would miss).
 */
struct store_probe {
	struct store_request base;
	struct str tenant;
	const struct id *keys; /* of waits */
	uint32_t key_count;
	/* Out, when OK: one an order key, channel and keeper. */
	struct store_early *found;
	uint32_t found_count;
};
void store_probe(struct store *store, struct store_probe *probe);

/* The tenants of a segment, ",a,b,": of rows in any order, each about once. In the arena, terminated.
 * @thread any */
struct str store_tenants(struct arena *arena, const struct str *tenants, uint32_t count);

/* Keys of the correlation tables: digests that include the tenant. */
struct id store_inbox_key(struct str tenant, struct str channel, struct str event_id);
struct id store_wait_key(struct str tenant, struct str channel, struct str name, struct str value);
struct id store_alias_key(struct str tenant, struct str name, struct str value);

struct store_wait_row {
	struct id key;
	uint32_t token;
	bool unique;
	/* For inserts. */
	struct str node;
	struct str channel;
};

struct store_alias_row {
	struct id key;
	bool unique;
	struct str name;
	struct str value;
};

/* One row of outbox_entry. Its order group is (instance, channel), where a reply's channel is "reply:<inbound>". */
struct outbox_row {
	struct str tenant;  /* in a commit, absent = the commit's */
	struct id instance; /* of a row without an instance: a digest of its delivery and purpose */
	struct str channel;
	int64_t version;
	int64_t ordinal;
	struct id id; /* the idempotency key: digest of (instance, version, ordinal) */
	struct str deployment;
	struct str connection;  /* absent = the channel's; else of a reply */
	struct str destination; /* absent = the channel's bind; else of a reply */
	struct str correlation; /* packed value; absent = none */
	struct str record_key;
	struct str headers; /* packed by headers_pack */
	struct str content_type;
	struct str body; /* absent = a null record */
	bool required;
	/*
	 * Of the commit's own instance: the capacity pool whose slot the row waits for, and the call that the slot is for. Such a row is
	 * committed unclaimed, unless its session or call has ended or has its slot: then it needs none. Whoever grants the slot
	 * (POOL_SCAN) makes `pool` absent, so that a row with a pool is one that waits.
	 */
	struct str pool;     /* absent = needs no slot */
	struct str call_key; /* see store_call_key */
	/* Out of a commit or of the scans. */
	bool claimed; /* committed claimed by the store's outbox owner */
	int64_t attempt_count;
	int64_t created_us;
};
struct id outbox_row_id(struct id instance, int64_t version, int64_t ordinal);
/* A call key as the tables have it: the value, or "sha256:…" of one that is longer than STORE_TEXT_MAX. In the arena, or the value's. */
struct str store_call_key(struct arena *arena, struct str value);

/* An unsent row of an earlier commit of the instance, which need not be sent any more. */
struct store_withdrawn {
	struct str channel;
	int64_t version;
	int64_t ordinal;
};

/*
 * A message whose body the database keeps, because the broker has it no more: a row of inbox_message. Rows of one order key
 * take effect one after the other, by seq: those of a commit in their order there, behind those of commits that were answered
 * before it was sent. A row belongs to the keeper (a replica) that stamped it for as long as that holds
 * its lease `keeper:<keeper>`; then any replica may take it over (KEPT_RECOVER).
 */
enum kept_kind {
	KEPT_OVERFLOW, /* its hold had come to a bound */
	KEPT_EARLY,    /* nobody waits for it yet */
	KEPT_TARGET,   /* for one of several targets of a message */
	KEPT_REPLAY,   /* of a dead letter */
};
/* As it stands in the database. @thread any */
const char *kept_kind_name(enum kept_kind kind);

struct kept_row {
	struct id id; /* made by who keeps it: a second run of its commit inserts nothing */
	enum kept_kind kind;
	struct id order_key;
	struct str channel;
	struct str source;   /* for people; made valid text by the store */
	struct str envelope; /* everything of the message but its body, packed; absent = empty */
	struct str body;     /* absent = null */
	int64_t unmatched_us; /* wall clock: since when nobody waits for it; 0 = not so */
};

/*
 * Nobody waits yet for a kept message, which looks for waits of these keys: it is early. One that was kept before must be
 * the keeper's; else nothing happens.
 */
struct kept_early {
	struct id message;
	bool is_kept;	      /* before; not by this commit */
	int64_t unmatched_us; /* is_kept: since when */
	const struct id *keys;
	uint32_t key_count;
};

/* A row of `timer`. */
struct store_timer_row {
	uint32_t token;
	int64_t due_us; /* of those removed unused */
	struct str node;
};

/* How the commit of its fire moves a start timer's row of timer_schedule on: a gate, passed if next_at is `expected_us`. */
struct store_schedule {
	struct id id; /* none = no schedule */
	int64_t expected_us;
	int64_t next_us;   /* 0 = never again */
	int64_t remaining; /* fires after this one; -1 = without end */
};

struct dead_letter_row {
	struct id id; /* digest of (tenant, channel, event id or delivery identity): once */
	struct str channel;
	struct str event_id; /* absent = none */
	struct str source;   /* delivery identity, "kafka:orders/3/17" */
	struct str message_type;
	enum code code;
	struct str detail;
	struct id instance; /* none = all zero */
	struct str record_key;
	struct str headers; /* packed */
	struct str content_type;
	struct str payload; /* absent = null */
};

/*
 * The session of an instance, or one of its calls: a row of channel_session. The session's own row, with the call key "", is what
 * everybody locks who changes anything of the session, its calls or its slots. A row stays when it has ended, until the instance is
 * removed: nothing takes a released slot back.
 */
struct store_session_row {
	struct str call_key; /* "" = the session's own */
	struct str channel;  /* "": which admitted the instance; else absent */
	bool inbound;        /* the call that came with the spawn */
	bool counts;         /* "": against the caps, until the session or the inbound call ends */
	uint32_t token;      /* of a channel call: the token that waits; 0 = none. A later row of an open key replaces it */
};

/* A slot that a spawn takes for its inbound call. Those of one commit are of different pools. */
struct store_slot_row {
	struct str pool;
	struct str call_key;
};

/* How many instances may count at once, this one included; 0 = any number. */
struct store_cap {
	int64_t channel_limit;
	int64_t tenant_limit;
};

/*
 * What ends with a commit. Slots of what has ended go back, and rows of the outbox that still wait for one need none any more. What
 * is unknown, or has ended before, does nothing.
 */
enum store_end {
	STORE_END_NOTHING,
	STORE_END_CALL_KEY, /* that call; of the inbound one also the count */
	STORE_END_TOKEN,    /* the outbound call of that token */
	STORE_END_INBOUND,  /* the inbound call, and the count */
	STORE_END_ALL,      /* the session with all its calls, and the count */
};
struct store_session_end {
	enum store_end what;
	struct id instance; /* the commit's own, or in one without an instance any */
	struct str call_key;
	uint32_t token;
};

/*
 * One element of the group commit: everything that one step writes. It commits with all its rows or not at all, and
 * releases the claim in the same transaction.
 */
enum commit_kind {
	COMMIT_SPAWN,       /* inserts the instance */
	COMMIT_RESUME,      /* fences on owner and version, then updates */
	COMMIT_NO_INSTANCE, /* a dead letter, or kept messages, alone */
};
struct store_commit {
	struct store_request base;
	enum commit_kind commit;
	struct str tenant;
	struct id instance;
	struct str owner; /* RESUME */
	int64_t version;  /* RESUME: as claimed; the row becomes version + 1. SPAWN: 1 */
	enum instance_status status;
	struct str deployment;
	struct str process;
	int64_t started_us;
	struct str code;   /* FAILED */
	struct str detail; /* FAILED */
	struct str snapshot;
	const struct id *inbox_keys; /* distinct */
	uint32_t inbox_key_count;
	const struct store_wait_row *waits_added, *waits_removed;
	uint32_t waits_added_count, waits_removed_count;
	const struct store_alias_row *aliases_added, *aliases_removed;
	uint32_t aliases_added_count, aliases_removed_count;
	const struct store_timer_row *timers_added, *timers_removed; /* removed first */
	uint32_t timers_added_count, timers_removed_count;
	struct store_schedule schedule; /* SPAWN, or NO_INSTANCE alone */
	const struct store_withdrawn *withdrawn; /* RESUME */
	uint32_t withdrawn_count;
	struct outbox_row *outbox; /* `claimed` is set on return */
	uint32_t outbox_count;
	const struct dead_letter_row *dead_letters;
	uint32_t dead_letter_count;
	/* Of a replay: the dead letter that this commit is the effect of, which goes; none = all zero. Or, with one of that id in
	 * `dead_letters`: it was rejected again, so that stays, with the new code, detail and instance. */
	struct id dead_letter_removed;
	/* Kept messages: those that this commit keeps, in order, and the one whose effect or end it is (none = all zero), which must
	 * be there and the keeper's. Without a keeper those added are nobody's: any replica that consumes the channel takes them over. */
	struct str keeper;
	const struct kept_row *kept_added;
	uint32_t kept_added_count;
	const struct kept_early *early;
	uint32_t early_count;
	struct id kept_removed;
	/* Of instances with a session. A pooled row of the outbox has its call among the rows added here, or before. */
	const struct store_session_row *sessions;
	uint32_t session_count;
	const struct store_session_end *session_ends;
	uint32_t session_end_count;
	/* SPAWN. One that ends in the same commit passes, and holds nothing. */
	const struct store_slot_row *slots;
	uint32_t slot_count;
	struct store_cap cap; /* the channel is that of the session's own row */
	/* Out. */
	struct str *freed; /* pools to which slots went back, each once; in the arena of the request */
	uint32_t freed_count;
	bool unpooled; /* rows of the outbox that waited for a slot need none any more: scans find them */
	bool unchecked; /* OK, but caps or pools could not be asked: admitted without */
	struct store_full {
		int64_t limit;             /* slots of the pool, or the cap */
		int64_t inbound, outbound; /* held of the pool; of a cap, `inbound` count */
		struct str pool;
	} full;
	/* The store's. */
	bool skips_caps, skips_slots;
	uint32_t full_tries;
};
/*
 * Without an instance there may be kept messages added or marked as early, or one removed, or one removed and a dead letter, or one removed
 * and others, with the inbox keys of all, that stand for it; and sessions may end.
 *
 * Texts that are not UTF-8, or hold a NUL, or are longer than STORE_TEXT_MAX where the database indexes them, are REJECTED;
 * those of dead letters, `detail` and the source of a kept message are made valid instead, for a dead letter must never be lost.
 * OK, DUPLICATE, FENCED, ALIAS_CONFLICT, WAIT_NOT_UNIQUE, KEPT_LOST, SCHEDULE_MOVED, CHANNEL_FULL, TENANT_FULL, POOL_FULL (in
 * this order where there are several), REJECTED, UNAVAILABLE. A commit in doubt is resolved before it
 * is answered, however long that takes; store_stop answers what is still in doubt with UNAVAILABLE.
 */
void store_commit(struct store *store, struct store_commit *commit);

/* One segment as given, on CONN_BACKGROUND, in order of arrival. Queries are retried once on a lock timeout or deadlock. */
struct store_query {
	struct store_request base;
	struct segment segment; /* calls, tenants, scan, durable, writes set; arena is base.arena */
};
/* OK, REJECTED, UNAVAILABLE (also for a lost connection with the outcome unknown: run it again; all are idempotent). */
void store_query(struct store *store, struct store_query *query);

struct store_settings {
	uint32_t batch_max;
	uint64_t batch_max_bytes;
	int64_t lock_timeout_ms;
	int64_t claim_timeout_ms; /* instance.claim-timeout */
	const char *
		outbox_owner; /* stamp on rows that steps commit claimed; NULL = commit all unclaimed */
};

/* Takes the executor. Never NULL. */
struct store *store_new(struct runtime *runtime, struct executor *executor,
			const struct store_settings *settings);
void store_start(struct store *store);
void store_stop(struct store *store);
void store_free(struct store **store);

/* @thread any. The last known state; when false `why` (may be NULL) gets the reason. */
bool store_is_up(struct store *store, struct buf *why);

/* Counters, read with atomic loads. @thread any */
struct store_stats {
	/* Takes are counted with commits. */
	uint64_t segments, statements, transactions, elements[STORE_KIND_COUNT],
		batches[STORE_KIND_COUNT];
	uint64_t gate_failures, doubts, quarantined;
	uint64_t batch_histogram[10]; /* commits: batches of 1, ≤2, ≤4, … ≤256, more */
};
void store_stats_read(struct store *store, struct store_stats *out);

#endif
