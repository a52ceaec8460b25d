/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-memory tables: rows of typed fields, kept in order of their primary key, changed only inside a transaction that
 * can be taken back as a whole.
 *
 * Life cycle: memory_database_new/_free (store/executor.h). tx_begin … tx_commit or tx_rollback under the database's lock.
 * Threads: any, one at a time by the lock.
 */
#ifndef SUTRA_STORE_MEMORY_TABLES_H
#define SUTRA_STORE_MEMORY_TABLES_H

#include <pthread.h>

#include "store/executor.h"
#include "store/memory/tree.h"

/* Columns of each table; the primary key comes first. */
enum {
	INSTANCE_id,
	INSTANCE_tenant,
	INSTANCE_deployment,
	INSTANCE_process,
	INSTANCE_status,
	INSTANCE_version,
	INSTANCE_started,
	INSTANCE_ended,
	INSTANCE_code,
	INSTANCE_detail,
	INSTANCE_claim_owner,
	INSTANCE_claim_at,
	INSTANCE_snapshot,
	INSTANCE_COLUMNS
};
enum { INBOX_key, INBOX_tenant, INBOX_instance, INBOX_created, INBOX_COLUMNS };
enum {
	ALIAS_key,
	ALIAS_slot,
	ALIAS_tenant,
	ALIAS_instance,
	ALIAS_name,
	ALIAS_value,
	ALIAS_COLUMNS
};
enum {
	WAIT_key,
	WAIT_slot,
	WAIT_tenant,
	WAIT_instance,
	WAIT_token,
	WAIT_node,
	WAIT_channel,
	WAIT_deployment,
	WAIT_created,
	WAIT_COLUMNS
};
enum {
	OUTBOX_instance,
	OUTBOX_channel,
	OUTBOX_version,
	OUTBOX_ordinal,
	OUTBOX_tenant,
	OUTBOX_id,
	OUTBOX_deployment,
	OUTBOX_connection,
	OUTBOX_destination,
	OUTBOX_correlation,
	OUTBOX_record_key,
	OUTBOX_headers,
	OUTBOX_content_type,
	OUTBOX_body,
	OUTBOX_required,
	OUTBOX_attempt_count,
	OUTBOX_created,
	OUTBOX_next_attempt,
	OUTBOX_claimed_at,
	OUTBOX_claim_owner,
	OUTBOX_poisoned,
	OUTBOX_diagnostic,
	OUTBOX_pool,
	OUTBOX_call_key,
	OUTBOX_COLUMNS
};
/* In the order in which DEAD_LETTER_GET answers. */
enum {
	DEAD_id,
	DEAD_tenant,
	DEAD_channel,
	DEAD_event_id,
	DEAD_source,
	DEAD_message_type,
	DEAD_code,
	DEAD_detail,
	DEAD_instance,
	DEAD_content_type,
	DEAD_created,
	DEAD_record_key,
	DEAD_headers,
	DEAD_payload,
	DEAD_replays,
	DEAD_COLUMNS
};
/* In the order in which KEPT_LIST answers. */
enum {
	KEPT_id,
	KEPT_tenant,
	KEPT_channel,
	KEPT_kind,
	KEPT_order_key,
	KEPT_seq,
	KEPT_keeper,
	KEPT_source,
	KEPT_created,
	KEPT_unmatched,
	KEPT_envelope,
	KEPT_body,
	KEPT_COLUMNS
};
enum { EARLY_key, EARLY_message, EARLY_tenant, EARLY_COLUMNS };
enum { TIMER_instance, TIMER_token, TIMER_due, TIMER_tenant, TIMER_node, TIMER_deployment, TIMER_COLUMNS };
/* In the order in which SCHEDULE_PUT takes them and SCHEDULE_LIST answers. */
enum {
	SCHEDULE_id,
	SCHEDULE_tenant,
	SCHEDULE_deployment,
	SCHEDULE_process,
	SCHEDULE_node,
	SCHEDULE_spec,
	SCHEDULE_next,
	SCHEDULE_remaining,
	SCHEDULE_created,
	SCHEDULE_COLUMNS
};
enum {
	SESSION_instance,
	SESSION_call_key,
	SESSION_tenant,
	SESSION_channel,
	SESSION_inbound,
	SESSION_counts,
	SESSION_token,
	SESSION_ended,
	SESSION_COLUMNS
};
enum { SLOT_instance, SLOT_pool, SLOT_call_key, SLOT_direction, SLOT_tenant, SLOT_created, SLOT_COLUMNS };
/* In the order in which POOL_PUT takes them. */
enum { POOL_name, POOL_slots, POOL_reserve_inbound, POOL_reserve_outbound, POOL_tenants, POOL_updated, POOL_COLUMNS };
enum { RATE_tenant, RATE_minute, RATE_used, RATE_COLUMNS };
enum { LEASE_role, LEASE_holder, LEASE_term, LEASE_expires, LEASE_COLUMNS };
enum {
	DEPLOYMENT_id,
	DEPLOYMENT_tenant,
	DEPLOYMENT_module,
	DEPLOYMENT_version,
	DEPLOYMENT_phase,
	DEPLOYMENT_created,
	DEPLOYMENT_pinned,
	DEPLOYMENT_archive,
	DEPLOYMENT_COLUMNS
};

enum table_id {
	TABLE_INSTANCE,
	TABLE_INBOX,
	TABLE_ALIAS,
	TABLE_WAIT,
	TABLE_OUTBOX,
	TABLE_DEAD_LETTER,
	TABLE_KEPT,
	TABLE_EARLY,
	TABLE_TIMER,
	TABLE_SCHEDULE,
	TABLE_SESSION,
	TABLE_SLOT,
	TABLE_POOL,
	TABLE_RATE,
	TABLE_LEASE,
	TABLE_DEPLOYMENT,
	TABLE_COUNT
};

struct table {
	enum table_id id;
	const char *types; /* one letter a column */
	uint32_t column_count;
	struct tree rows;
	/* Inbox: all rows by age; kept messages: by order key and seq; early rows: by message; timers: by due time; slots: by pool and direction; sessions
	 * that count: by tenant and channel. The outbox has one such tree a tenant instead. */
	struct tree index;
};

struct row {
	struct tree_node node;
	struct tree_node index_node;
	struct tree *index; /* the tree that index_node stands in, or NULL */
	struct field fields[];
};

static inline struct row *row_of(struct tree_node *node)
{
	return node ? container_of(node, struct row, node) : NULL;
}

/* What can be claimed of one tenant's outbox: unclaimed, unpoisoned heads of their groups, by due time. */
struct outbox_due {
	struct str tenant;
	struct tree rows;
	struct outbox_due *next; /* by tenant */
};

struct undo;

/* The outcomes of the last transactions, for questions about doubt. */
#define MEMORY_XACTS 65536

struct memory_database {
	pthread_mutex_t lock;
	struct table tables[TABLE_COUNT];
	struct outbox_due *due;
	struct tree waiting; /* heads of the outbox that wait for a slot: by pool, then oldest first */
	int64_t kept_seq;
	struct str due_last; /* the tenant that a scan served last; points into `due` */
	uint64_t xid;
	uint8_t committed[MEMORY_XACTS / 8];
	struct undo *undo;
	uint32_t undo_len;
	uint32_t undo_cap;
};

/* One segment under way. */
struct tx {
	struct memory_database *db;
	struct segment *segment;
	int64_t now_us;
};

/* Whether the segment may see rows of the tenant. */
bool tx_sees(const struct tx *tx, struct str tenant);

/* A row with all fields NULL, in no table yet. */
struct row *row_new(struct tx *tx, enum table_id table);
/* Texts are copied. */
void row_init_field(struct row *row, uint32_t column, struct field value, char type);
/* Gives the row to its table. False, and the row is freed, if the key is taken. */
bool tx_insert(struct tx *tx, enum table_id table, struct row *row) MUST_CHECK;
void tx_delete(struct tx *tx, enum table_id table, struct row *row);
/* Sets one field outside the primary key; a text is copied. */
void tx_set(struct tx *tx, enum table_id table, struct row *row, uint32_t column,
	    struct field value);
/* Ends the transaction: what was deleted or replaced is freed, or everything is put back. */
void tx_commit(struct tx *tx);
void tx_rollback(struct tx *tx);

/* Rows by primary key or the head of it; NULL if there is none. */
struct row *table_find(struct tx *tx, enum table_id table, const struct field *key, uint32_t count);
struct row *table_from(struct tx *tx, enum table_id table, const struct field *key, uint32_t count);
struct row *table_after(struct tx *tx, enum table_id table, const struct field *key,
			uint32_t count);
struct row *table_first(struct tx *tx, enum table_id table);
struct row *table_next(struct row *row);
bool table_matches(struct tx *tx, enum table_id table, struct row *row, const struct field *key,
		   uint32_t count);

/* The first unpoisoned row of the group that `row` belongs to or would; NULL if there is none. */
struct row *outbox_head(struct tx *tx, struct field instance, struct field channel);

/* Field values. */
static inline struct field field_null(void)
{
	return (struct field){.is_null = true};
}
static inline struct field field_int(int64_t i)
{
	return (struct field){.i = i};
}
static inline struct field field_time(int64_t us)
{
	return (struct field){.is_null = us == COLUMN_TIME_NULL, .i = us};
}
static inline struct field field_id(struct id id)
{
	return (struct field){.id = id};
}
static inline struct field field_str(struct str str)
{
	return (struct field){.is_null = str.ptr == NULL, .str = str};
}
static inline struct field field_bool(bool b)
{
	return (struct field){.b = b};
}
/* NULL reads as an absent string. */
static inline struct str field_text(struct field field)
{
	return field.is_null ? STR_NONE : field.str;
}

/* memory/statements.c: runs one statement. False when the segment failed; its outcome is set then. */
bool memory_statement_run(struct tx *tx, struct segment_call *call) MUST_CHECK;

#endif
