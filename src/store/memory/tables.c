/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables, rows and transactions of the memory store.
 *
 * A transaction is a list of what to take back: each insert, delete and set field. The tables always show the newest
 * state; since segments run one at a time under the lock, nobody sees one that is taken back later. A text field points
 * into a heap block of its own, which a set replaces and the end of the transaction frees.
 *
 * The outbox keeps, beside its primary key, one tree a tenant of the rows that a scan may take: the head of each order
 * group if it is unclaimed. So a scan costs what it returns, however many rows wait behind their heads (G6).
 */
#include "store/memory/tables.h"

#include "base/alloc.h"

enum undo_kind { UNDO_INSERT, UNDO_DELETE, UNDO_SET };

struct undo {
	enum undo_kind kind;
	enum table_id table;
	uint32_t column;
	struct row *row;
	struct field old;
};

static const struct {
	const char *types;
	uint32_t key_columns;
} schemas[TABLE_COUNT] = {
	[TABLE_INSTANCE] = {"utttiizzttt"
			    "zb",
			    1},
	[TABLE_INBOX] = {"utuz", 1},
	[TABLE_ALIAS] = {"uututt", 2},
	[TABLE_WAIT] = {"uutuitttz", 2},
	[TABLE_OUTBOX] = {"utiitutttbbbtboizzztottt", 4},
	[TABLE_DEAD_LETTER] = {"utttttttutzbbbi", 1},
	[TABLE_KEPT] = {"utttuittzzbb", 1},
	[TABLE_EARLY] = {"uut", 2},
	[TABLE_TIMER] = {"uizttt", 2},
	[TABLE_SCHEDULE] = {"utttttziz", 1},
	[TABLE_SESSION] = {"utttooiz", 2},
	[TABLE_SLOT] = {"utttt" "z", 3},
	[TABLE_POOL] = {"tiiitz", 1},
	[TABLE_RATE] = {"tzi", 1},
	[TABLE_LEASE] = {"ttiz", 1},
	[TABLE_DEPLOYMENT] = {"tttttzob", 1},
};

static const struct field *node_fields(const struct tree_node *node)
{
	return container_of(node, const struct row, node)->fields;
}

static const struct field *index_node_fields(const struct tree_node *node)
{
	return container_of(node, const struct row, index_node)->fields;
}

static void tree_init(struct tree *tree, const char *types, const uint8_t *columns, uint32_t count,
		      const struct field *(*fields)(const struct tree_node *))
{
	*tree = (struct tree){.fields = fields, .column_count = count};
	for (uint32_t i = 0; i < count; i++) {
		tree->columns[i] = columns[i];
		tree->types[i] = (enum column_type)types[columns[i]];
	}
}

struct memory_database *memory_database_new(void)
{
	static const uint8_t key[] = {0, 1, 2, 3}, by_age[] = {INBOX_created, INBOX_key},
			     by_order[] = {KEPT_order_key, KEPT_seq},
			     by_message[] = {EARLY_message, EARLY_key},
			     by_due[] = {TIMER_due, TIMER_instance, TIMER_token},
			     by_pool[] = {SLOT_pool, SLOT_direction, SLOT_instance, SLOT_call_key},
			     by_channel[] = {SESSION_tenant, SESSION_channel, SESSION_instance, SESSION_call_key},
			     by_wait[] = {OUTBOX_pool, OUTBOX_created, OUTBOX_id};
	struct memory_database *db = mem_zalloc(sizeof(*db));

	pthread_mutex_init(&db->lock, NULL);
	for (uint32_t i = 0; i < TABLE_COUNT; i++) {
		struct table *table = &db->tables[i];

		table->id = (enum table_id)i;
		table->types = schemas[i].types;
		table->column_count = (uint32_t)strlen(table->types);
		tree_init(&table->rows, table->types, key, schemas[i].key_columns, node_fields);
	}
	tree_init(&db->tables[TABLE_INBOX].index, schemas[TABLE_INBOX].types, by_age, 2,
		  index_node_fields);
	tree_init(&db->tables[TABLE_KEPT].index, schemas[TABLE_KEPT].types, by_order, 2,
		  index_node_fields);
	tree_init(&db->tables[TABLE_EARLY].index, schemas[TABLE_EARLY].types, by_message, 2,
		  index_node_fields);
	tree_init(&db->tables[TABLE_TIMER].index, schemas[TABLE_TIMER].types, by_due, 3,
		  index_node_fields);
	tree_init(&db->tables[TABLE_SLOT].index, schemas[TABLE_SLOT].types, by_pool, 4, index_node_fields);
	tree_init(&db->tables[TABLE_SESSION].index, schemas[TABLE_SESSION].types, by_channel, 4, index_node_fields);
	tree_init(&db->waiting, schemas[TABLE_OUTBOX].types, by_wait, 3, index_node_fields);
	return db;
}

static bool type_is_text(char type)
{
	return type == COLUMN_TEXT || type == COLUMN_BYTES;
}

static struct field text_copy(struct field value)
{
	char *copy;

	if (value.is_null)
		return value;
	copy = mem_alloc(value.str.len + 1);
	memcpy(copy, value.str.ptr, value.str.len);
	copy[value.str.len] = '\0';
	value.str.ptr = copy;
	return value;
}

static void field_free(struct field *field, char type)
{
	if (type_is_text(type) && !field->is_null)
		free((char *)(uintptr_t)field->str.ptr);
}

static void row_free(const struct table *table, struct row *row)
{
	for (uint32_t i = 0; i < table->column_count; i++)
		field_free(&row->fields[i], table->types[i]);
	free(row);
}

void memory_database_free(struct memory_database **database)
{
	struct memory_database *db = *database;

	if (!db)
		return;
	for (uint32_t i = 0; i < TABLE_COUNT; i++) {
		struct tree_node *node;

		while ((node = tree_first(&db->tables[i].rows))) {
			tree_remove(&db->tables[i].rows, node);
			row_free(&db->tables[i], row_of(node));
		}
	}
	while (db->due) {
		struct outbox_due *due = db->due;

		db->due = due->next;
		free((char *)(uintptr_t)due->tenant.ptr);
		free(due);
	}
	free(db->undo);
	pthread_mutex_destroy(&db->lock);
	free(db);
	*database = NULL;
}

bool tx_sees(const struct tx *tx, struct str tenant)
{
	struct str list = tx->segment->tenants;

	if (tx->segment->scan)
		return true;
	for (size_t at = 1; at + tenant.len < list.len; at++) {
		if (list.ptr[at - 1] == ',' && list.ptr[at + tenant.len] == ',' &&
		    memcmp(list.ptr + at, tenant.ptr, tenant.len) == 0)
			return true;
	}
	return false;
}

/* --- indexes --- */

static void index_leave(struct row *row)
{
	if (row->index)
		tree_remove(row->index, &row->index_node);
	row->index = NULL;
}

static void index_enter(struct tree *tree, struct row *row)
{
	if (row->index)
		return;
	tree_insert(tree, &row->index_node);
	row->index = tree;
}

static struct tree *due_tree(struct memory_database *db, struct str tenant)
{
	static const uint8_t columns[] = {OUTBOX_next_attempt, OUTBOX_instance, OUTBOX_channel,
					  OUTBOX_version, OUTBOX_ordinal};
	struct outbox_due **at = &db->due, *due;

	while (*at && str_compare((*at)->tenant, tenant) < 0)
		at = &(*at)->next;
	if (*at && str_equal((*at)->tenant, tenant))
		return &(*at)->rows;
	due = mem_zalloc(sizeof(*due));
	due->tenant = text_copy(field_str(tenant)).str;
	tree_init(&due->rows, schemas[TABLE_OUTBOX].types, columns, 5, index_node_fields);
	due->next = *at;
	*at = due;
	return &due->rows;
}

static struct row *outbox_unpoisoned(struct tx *tx, struct row *row, const struct field *group)
{
	while (row && table_matches(tx, TABLE_OUTBOX, row, group, 2) &&
	       row->fields[OUTBOX_poisoned].b)
		row = table_next(row);
	return row && table_matches(tx, TABLE_OUTBOX, row, group, 2) ? row : NULL;
}

struct row *outbox_head(struct tx *tx, struct field instance, struct field channel)
{
	struct field group[] = {instance, channel};

	return outbox_unpoisoned(tx, table_from(tx, TABLE_OUTBOX, group, 2), group);
}

/*
 * Sets right what is due in the group of `row`, which has just changed, come or gone. At most one row of a group is due: it
 * was `row`, or it is the head now, or it was the head before `row` became it and stands next.
 */
static void outbox_changed(struct tx *tx, struct row *row, bool gone)
{
	struct field group[] = {row->fields[OUTBOX_instance], row->fields[OUTBOX_channel]};
	struct row *head = outbox_head(tx, group[0], group[1]), *next;

	/* A key column of the due tree may be about to change: the row is put in anew. */
	index_leave(row);
	if (!head)
		return;
	next = table_next(head);
	next = next ? outbox_unpoisoned(tx, next, group) : NULL;
	if (next)
		index_leave(next);
	if (!head->fields[OUTBOX_claim_owner].is_null)
		index_leave(head);
	else if (head != row || !gone)
		index_enter(head->fields[OUTBOX_pool].is_null ? due_tree(tx->db, head->fields[OUTBOX_tenant].str) : &tx->db->waiting,
			    head);
}

static void row_link(struct tx *tx, struct table *table, struct row *row)
{
	tree_insert(&table->rows, &row->node);
	if (table->id == TABLE_INBOX || table->id == TABLE_KEPT || table->id == TABLE_EARLY || table->id == TABLE_TIMER ||
	    table->id == TABLE_SLOT || (table->id == TABLE_SESSION && row->fields[SESSION_counts].b))
		index_enter(&table->index, row);
	else if (table->id == TABLE_OUTBOX)
		outbox_changed(tx, row, false);
}

static void row_unlink(struct tx *tx, struct table *table, struct row *row)
{
	tree_remove(&table->rows, &row->node);
	if (table->id == TABLE_OUTBOX)
		outbox_changed(tx, row, true);
	else
		index_leave(row);
}

/* --- transactions --- */

static struct undo *undo_add(struct tx *tx, enum undo_kind kind, enum table_id table,
			     struct row *row)
{
	struct memory_database *db = tx->db;

	if (db->undo_len == db->undo_cap) {
		db->undo_cap = db->undo_cap ? db->undo_cap * 2 : 256;
		db->undo = mem_array(db->undo, db->undo_cap, sizeof(*db->undo));
	}
	db->undo[db->undo_len] = (struct undo){.kind = kind, .table = table, .row = row};
	return &db->undo[db->undo_len++];
}

struct row *row_new(struct tx *tx, enum table_id table)
{
	uint32_t count = tx->db->tables[table].column_count;
	struct row *row = mem_zalloc(sizeof(*row) + count * sizeof(struct field));

	for (uint32_t i = 0; i < count; i++)
		row->fields[i].is_null = true;
	return row;
}

void row_init_field(struct row *row, uint32_t column, struct field value, char type)
{
	row->fields[column] = type_is_text(type) ? text_copy(value) : value;
}

bool tx_insert(struct tx *tx, enum table_id id, struct row *row)
{
	struct table *table = &tx->db->tables[id];

	if (tree_find(&table->rows, row->fields, table->rows.column_count)) {
		row_free(table, row);
		return false;
	}
	row_link(tx, table, row);
	undo_add(tx, UNDO_INSERT, id, row);
	return true;
}

void tx_delete(struct tx *tx, enum table_id id, struct row *row)
{
	row_unlink(tx, &tx->db->tables[id], row);
	undo_add(tx, UNDO_DELETE, id, row);
}

/* The due tree is left before one of its key columns changes and entered after. */
static void field_replace(struct tx *tx, enum table_id table, struct row *row, uint32_t column,
			  struct field value)
{
	if (table == TABLE_OUTBOX)
		index_leave(row);
	row->fields[column] = value;
	if (table == TABLE_OUTBOX)
		outbox_changed(tx, row, false);
	if (table == TABLE_SESSION && column == SESSION_counts) {
		index_leave(row);
		if (value.b)
			index_enter(&tx->db->tables[table].index, row);
	}
}

void tx_set(struct tx *tx, enum table_id id, struct row *row, uint32_t column, struct field value)
{
	struct undo *undo = undo_add(tx, UNDO_SET, id, row);

	undo->column = column;
	undo->old = row->fields[column];
	if (type_is_text(tx->db->tables[id].types[column]))
		value = text_copy(value);
	field_replace(tx, id, row, column, value);
}

void tx_commit(struct tx *tx)
{
	struct memory_database *db = tx->db;

	for (uint32_t i = 0; i < db->undo_len; i++) {
		struct undo *undo = &db->undo[i];
		const struct table *table = &db->tables[undo->table];

		if (undo->kind == UNDO_SET)
			field_free(&undo->old, table->types[undo->column]);
	}
	/* A row set earlier in the transaction is freed only when nothing names it any more. */
	for (uint32_t i = 0; i < db->undo_len; i++)
		if (db->undo[i].kind == UNDO_DELETE)
			row_free(&db->tables[db->undo[i].table], db->undo[i].row);
	db->undo_len = 0;
}

void tx_rollback(struct tx *tx)
{
	struct memory_database *db = tx->db;

	while (db->undo_len) {
		struct undo *undo = &db->undo[--db->undo_len];
		struct table *table = &db->tables[undo->table];
		struct field newer;

		switch (undo->kind) {
		case UNDO_INSERT:
			row_unlink(tx, table, undo->row);
			row_free(table, undo->row);
			break;
		case UNDO_DELETE:
			row_link(tx, table, undo->row);
			break;
		case UNDO_SET:
			newer = undo->row->fields[undo->column];
			field_replace(tx, undo->table, undo->row, undo->column, undo->old);
			field_free(&newer, table->types[undo->column]);
			break;
		}
	}
}

/* --- look-ups --- */

struct row *table_find(struct tx *tx, enum table_id table, const struct field *key, uint32_t count)
{
	return row_of(tree_find(&tx->db->tables[table].rows, key, count));
}

struct row *table_from(struct tx *tx, enum table_id table, const struct field *key, uint32_t count)
{
	return row_of(tree_from(&tx->db->tables[table].rows, key, count));
}

struct row *table_after(struct tx *tx, enum table_id table, const struct field *key, uint32_t count)
{
	return row_of(tree_after(&tx->db->tables[table].rows, key, count));
}

struct row *table_first(struct tx *tx, enum table_id table)
{
	return row_of(tree_first(&tx->db->tables[table].rows));
}

struct row *table_next(struct row *row)
{
	return row_of(tree_next(&row->node));
}

bool table_matches(struct tx *tx, enum table_id table, struct row *row, const struct field *key,
		   uint32_t count)
{
	return tree_matches(&tx->db->tables[table].rows, &row->node, key, count);
}
