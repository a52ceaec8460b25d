/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: an instance as bytes and back.
 *
 * The form is one MessagePack array of SNAPSHOT_FIELDS elements, whose first is the number of the format. It has at most 15
 * elements, so that the number is the second byte of every snapshot: a reader can tell a format that is newer than itself
 * before it understands anything else. A change of the form takes a new number, and the reader goes on reading the old ones.
 *
 *	[format, deployment, process, status, started_us, next_token, next_scope,
 *	 tokens, scopes, aliases, reply, traceparent, tracestate, failure]
 *	token:   [id, scope, host, node, state, flow, [[name, value], …], timer, locals]
 *	timer:   nil or [due_us, period_us, remaining]
 *	locals:  nil or {local: value, …}
 *	scope:   [id, parent, owner, iteration, node, process, {variable: value, …}]
 *	alias:   [name, value, unique]
 *	reply:   nil or [channel, connection, transport, destination, correlation]
 *	failure: nil or [code, detail, node, event]
 *
 * Format 2 had neither timers nor locals: its tokens have seven elements. Format 1 had neither sub-processes nor joins: its tokens are [id, scope, node, state, keys], and its one scope is
 * [0, 0, nil, variables].
 *
 * An absent string is nil; one that is not UTF-8 (a header may be anything) is a byte string.
 *
 * The reader trusts nothing: the bytes come from a database that operators can write to. Every type, range, order and
 * reference is checked, so that the engine may assume that an instance is consistent.
 */
#include <inttypes.h>

#include "engine/behaviour.h"

#define SNAPSHOT_FORMAT 3
#define SNAPSHOT_OLDEST 1
#define SNAPSHOT_FIELDS 14

static_assert(SNAPSHOT_FIELDS <= 15, "the format number must be the second byte");

/* Writing. */

static int pack_write(void *arg, const char *bytes, size_t len)
{
	buf_add(arg, bytes, len);
	return 0;
}

static void pack_str(msgpack_packer *packer, struct str s)
{
	if (!s.ptr) {
		msgpack_pack_nil(packer);
	} else if (str_is_utf8(s)) {
		msgpack_pack_str(packer, s.len);
		msgpack_pack_str_body(packer, s.ptr, s.len);
	} else {
		msgpack_pack_bin(packer, s.len);
		msgpack_pack_bin_body(packer, s.ptr, s.len);
	}
}

static void pack_bool(msgpack_packer *packer, bool v)
{
	if (v)
		msgpack_pack_true(packer);
	else
		msgpack_pack_false(packer);
}

static void pack_variables(msgpack_packer *packer, const struct scope_variable *variables,
			   uint32_t count, struct buf *out)
{
	msgpack_pack_map(packer, count);
	for (uint32_t i = 0; i < count; i++) {
		pack_str(packer, variables[i].name);
		value_pack(&variables[i].value, out);
	}
}

static void pack_timer(msgpack_packer *packer, const struct token *token)
{
	if (!token->due_us) {
		msgpack_pack_nil(packer);
		return;
	}
	msgpack_pack_array(packer, 3);
	msgpack_pack_int64(packer, token->due_us);
	msgpack_pack_int64(packer, token->period_us);
	msgpack_pack_int64(packer, token->remaining);
}

static void pack_token(msgpack_packer *packer, const struct token *token, struct buf *out)
{
	msgpack_pack_array(packer, 9);
	msgpack_pack_uint32(packer, token->id);
	msgpack_pack_uint32(packer, token->scope);
	msgpack_pack_uint32(packer, token->host);
	pack_str(packer, token->node);
	msgpack_pack_uint32(packer, token->state);
	pack_str(packer, token->flow);
	msgpack_pack_array(packer, token->key_count);
	for (uint32_t i = 0; i < token->key_count; i++) {
		msgpack_pack_array(packer, 2);
		pack_str(packer, token->keys[i].name);
		pack_str(packer, token->keys[i].value);
	}
	pack_timer(packer, token);
	if (token->local_count)
		pack_variables(packer, token->locals, token->local_count, out);
	else
		msgpack_pack_nil(packer);
}

static void pack_scope(msgpack_packer *packer, const struct scope *scope, struct buf *out)
{
	msgpack_pack_array(packer, 7);
	msgpack_pack_uint32(packer, scope->id);
	msgpack_pack_uint32(packer, scope->parent);
	msgpack_pack_uint32(packer, scope->owner);
	msgpack_pack_uint32(packer, scope->iteration);
	pack_str(packer, scope->node);
	pack_str(packer, scope->process);
	pack_variables(packer, scope->variables, scope->variable_count, out);
}

static void pack_reply(msgpack_packer *packer, const struct reply_address *reply, struct buf *out)
{
	if (!reply->channel.ptr && !reply->connection.ptr && !reply->transport.ptr &&
	    !reply->destination.ptr && value_is_nil(&reply->correlation)) {
		msgpack_pack_nil(packer);
		return;
	}
	msgpack_pack_array(packer, 5);
	pack_str(packer, reply->channel);
	pack_str(packer, reply->connection);
	pack_str(packer, reply->transport);
	pack_str(packer, reply->destination);
	value_pack(&reply->correlation, out);
}

static void pack_failure(msgpack_packer *packer, const struct instance *inst, struct buf *out)
{
	if (!inst->failure_code.ptr && !inst->failure_detail.ptr && !inst->failure_node.ptr &&
	    value_is_nil(&inst->failure_event)) {
		msgpack_pack_nil(packer);
		return;
	}
	msgpack_pack_array(packer, 4);
	pack_str(packer, inst->failure_code);
	pack_str(packer, inst->failure_detail);
	pack_str(packer, inst->failure_node);
	value_pack(&inst->failure_event, out);
}

void snapshot_pack(const struct instance *inst, struct buf *out)
{
	msgpack_packer packer;

	msgpack_packer_init(&packer, out, pack_write);
	msgpack_pack_array(&packer, SNAPSHOT_FIELDS);
	msgpack_pack_uint32(&packer, SNAPSHOT_FORMAT);
	pack_str(&packer, inst->deployment);
	pack_str(&packer, inst->process);
	msgpack_pack_uint32(&packer, inst->status);
	msgpack_pack_int64(&packer, inst->started_us);
	msgpack_pack_uint32(&packer, inst->next_token);
	msgpack_pack_uint32(&packer, inst->next_scope);
	msgpack_pack_array(&packer, inst->token_count);
	for (uint32_t i = 0; i < inst->token_count; i++)
		pack_token(&packer, &inst->tokens[i], out);
	msgpack_pack_array(&packer, inst->scope_count);
	for (uint32_t i = 0; i < inst->scope_count; i++)
		pack_scope(&packer, &inst->scopes[i], out);
	msgpack_pack_array(&packer, inst->alias_count);
	for (uint32_t i = 0; i < inst->alias_count; i++) {
		msgpack_pack_array(&packer, 3);
		pack_str(&packer, inst->aliases[i].name);
		pack_str(&packer, inst->aliases[i].value);
		pack_bool(&packer, inst->aliases[i].unique);
	}
	pack_reply(&packer, &inst->reply, out);
	pack_str(&packer, inst->traceparent);
	pack_str(&packer, inst->tracestate);
	pack_failure(&packer, inst, out);
}

/*
 * Reading: the value reader has made a tree of the bytes; the rest is a walk over it. A reader stays failed after the first
 * mistake and then gives zeros, so that each field is read by one line and the checks are where the fields are.
 */
struct reader {
	struct arena *arena;
	int64_t format;
	const char *wrong; /* what the first mistake was; NULL = none yet */
};

static const msgpack_object reader_nil = {.type = MSGPACK_OBJECT_NIL};

static void reader_require(struct reader *reader, bool holds, const char *what)
{
	if (!holds && !reader->wrong)
		reader->wrong = what;
}

/* The elements of an array; `count` of them exactly unless UINT32_MAX. Never fewer than asked for when it succeeds. */
static const msgpack_object *read_array(struct reader *reader, const msgpack_object *value,
					uint32_t count, uint32_t *size, const char *what)
{
	bool fits = value->type == MSGPACK_OBJECT_ARRAY &&
		    (count == UINT32_MAX || value->via.array.size == count);

	reader_require(reader, fits, what);
	if (size)
		*size = fits ? value->via.array.size : 0;
	return fits ? value->via.array.ptr : NULL;
}

static struct str read_str(struct reader *reader, const msgpack_object *value, bool required,
			   const char *what)
{
	struct str s;

	if (value->type == MSGPACK_OBJECT_NIL) {
		reader_require(reader, !required, what);
		return STR_NONE;
	}
	reader_require(reader,
		       value->type == MSGPACK_OBJECT_STR || value->type == MSGPACK_OBJECT_BIN,
		       what);
	s = value_as_str(value);
	return s.len ? s : STR("");
}

static int64_t read_int(struct reader *reader, const msgpack_object *value, int64_t min,
			int64_t max, const char *what)
{
	int64_t v = 0;
	bool fits = value_as_int(value, &v) && v >= min && v <= max;

	reader_require(reader, fits, what);
	return fits ? v : min;
}

static bool read_bool(struct reader *reader, const msgpack_object *value, const char *what)
{
	reader_require(reader, value->type == MSGPACK_OBJECT_BOOLEAN, what);
	return value->type == MSGPACK_OBJECT_BOOLEAN && value->via.boolean;
}

static uint32_t read_u32(struct reader *reader, const msgpack_object *value, const char *what)
{
	return (uint32_t)read_int(reader, value, 0, UINT32_MAX, what);
}

static void read_keys(struct reader *reader, const msgpack_object *value, struct token *token)
{
	const msgpack_object *keys = read_array(reader, value, UINT32_MAX, &token->key_count,
						"token keys");

	if (!token->key_count)
		return;
	token->keys = arena_zalloc(reader->arena, token->key_count * sizeof(*token->keys));
	for (uint32_t i = 0; i < token->key_count; i++) {
		const msgpack_object *key = read_array(reader, &keys[i], 2, NULL, "token key");

		if (!key)
			return;
		token->keys[i].name = read_str(reader, &key[0], true, "token key name");
		token->keys[i].value = read_str(reader, &key[1], true, "token key value");
	}
}

static void read_timer(struct reader *reader, const msgpack_object *value, struct token *token)
{
	const msgpack_object *field;

	if (value_is_nil(value))
		return;
	field = read_array(reader, value, 3, NULL, "timer");
	if (!field)
		return;
	token->due_us = read_int(reader, &field[0], 1, ISO_LAST_US, "time of a timer");
	token->period_us = read_int(reader, &field[1], 0, INT64_MAX, "period of a timer");
	token->remaining = read_int(reader, &field[2], -1, INT64_MAX, "remaining times of a timer");
	reader_require(reader, (token->period_us != 0) == (token->remaining != 0),
		       "remaining times of a timer");
	reader_require(reader, token->state == TOKEN_WAITING, "timer of a token that does not wait");
}

static struct scope_variable *read_variables(struct reader *reader, const msgpack_object *value,
					     uint32_t *count)
{
	struct scope_variable *variables;

	reader_require(reader, value->type == MSGPACK_OBJECT_MAP, "variables");
	*count = 0;
	if (value->type != MSGPACK_OBJECT_MAP || !value->via.map.size)
		return NULL;
	*count = value->via.map.size;
	variables = arena_zalloc(reader->arena, *count * sizeof(*variables));
	for (uint32_t i = 0; i < *count; i++) {
		const msgpack_object_kv *member = &value->via.map.ptr[i];

		variables[i].name = read_str(reader, &member->key, true, "variable name");
		variables[i].value = member->val;
	}
	return variables;
}

static void read_locals(struct reader *reader, const msgpack_object *value, struct token *token)
{
	if (value_is_nil(value))
		return;
	token->locals = read_variables(reader, value, &token->local_count);
	reader_require(reader, token->state == TOKEN_WAITING, "values of a token that does not wait");
}

static void read_token(struct reader *reader, const msgpack_object *value,
		       const struct instance *inst, struct token *token)
{
	bool old = reader->format == 1;
	uint32_t size = old ? 5 : reader->format == 2 ? 7 : 9;
	const msgpack_object *field = read_array(reader, value, size, NULL, "token");

	if (!field)
		return;
	token->id = read_u32(reader, &field[0], "token id");
	token->scope = read_u32(reader, &field[1], "token scope");
	token->host = old ? 0 : read_u32(reader, &field[2], "token host");
	field += old ? 2 : 3;
	token->node = read_str(reader, &field[0], true, "token node");
	token->state = (enum token_state)read_int(reader, &field[1], TOKEN_READY,
						  old ? TOKEN_WAITING : TOKEN_HOLDING,
						  "token state");
	if (!old)
		token->flow = read_str(reader, &field[2], token->state == TOKEN_JOINING,
				       "token flow");
	read_keys(reader, &field[old ? 2 : 3], token);
	if (reader->format > 2) {
		read_timer(reader, &field[4], token);
		read_locals(reader, &field[5], token);
	}
	reader_require(reader, token->id < inst->next_token, "token id not below the next");
	reader_require(reader, token->id > 0, "token id");
	reader_require(reader,
		       token->state != TOKEN_READY || !instance_status_is_terminal(inst->status),
		       "ready token in an instance that ended");
	reader_require(reader, token->state == TOKEN_JOINING || !token->flow.ptr, "token flow");
	reader_require(reader, token->state < TOKEN_JOINING || !token->key_count,
		       "keys of a token that does not wait");
}

static void read_tokens(struct reader *reader, const msgpack_object *value, struct instance *inst)
{
	const msgpack_object *items = read_array(reader, value, UINT32_MAX, &inst->token_count,
						 "tokens");

	if (!inst->token_count)
		return;
	inst->tokens = arena_zalloc(reader->arena, inst->token_count * sizeof(*inst->tokens));
	for (uint32_t i = 0; i < inst->token_count && !reader->wrong; i++) {
		read_token(reader, &items[i], inst, &inst->tokens[i]);
		reader_require(reader, i == 0 || inst->tokens[i - 1].id < inst->tokens[i].id,
			       "order of tokens");
		reader_require(reader, instance_scope(inst, inst->tokens[i].scope),
			       "scope of a token");
	}
}

static void read_scope(struct reader *reader, const msgpack_object *value,
		       const struct instance *inst, struct scope *scope)
{
	bool old = reader->format == 1;
	const msgpack_object *field = read_array(reader, value, old ? 4 : 7, NULL, "scope");

	if (!field)
		return;
	scope->id = read_u32(reader, &field[0], "scope id");
	scope->parent = read_u32(reader, &field[1], "scope parent");
	field += 2;
	if (!old) {
		scope->owner = read_u32(reader, &field[0], "scope owner");
		scope->iteration = read_u32(reader, &field[1], "scope iteration");
		field += 2;
	}
	scope->node = read_str(reader, field++, scope->id != 0, "scope node");
	if (!old)
		scope->process = read_str(reader, field++, false, "scope process");
	reader_require(reader, scope->id < inst->next_scope, "scope id not below the next");
	scope->variables = read_variables(reader, field, &scope->variable_count);
}

static void read_scopes(struct reader *reader, const msgpack_object *value, struct instance *inst)
{
	uint32_t count;
	const msgpack_object *items = read_array(reader, value, UINT32_MAX, &count, "scopes");

	reader_require(reader, count > 0, "no root scope");
	reader_require(reader, reader->format > 1 || count == 1, "number of scopes");
	if (!count)
		return;
	inst->scopes = arena_zalloc(reader->arena, count * sizeof(*inst->scopes));
	for (uint32_t i = 0; i < count && !reader->wrong; i++) {
		struct scope *scope = &inst->scopes[i];

		read_scope(reader, &items[i], inst, scope);
		/* A parent stands before its child, so that every chain of parents ends at the root. */
		if (i == 0)
			reader_require(reader,
				       scope->id == 0 && scope->parent == 0 && scope->owner == 0 &&
					       scope->iteration == 0 && !scope->node.ptr &&
					       !scope->process.ptr,
				       "root scope");
		else
			reader_require(reader,
				       scope[-1].id < scope->id && scope->parent < scope->id &&
					       instance_scope(inst, scope->parent),
				       "order of scopes");
		inst->scope_count = i + 1;
	}
}

/*
 * A scope is opened by a token that holds in the scope around it; a run of a loop, in the loop's own scope, which the same
 * token opened at the same node.
 */
static void check_owner(struct reader *reader, const struct instance *inst,
			const struct scope *scope)
{
	const struct token *owner = instance_token(inst, scope->owner);
	const struct scope *parent = instance_scope(inst, scope->parent);
	bool fits = owner && parent && owner->state == TOKEN_HOLDING &&
		    str_equal(owner->node, scope->node);

	if (fits && scope->iteration)
		fits = !scope->process.ptr && parent->owner == scope->owner && !parent->iteration &&
		       owner->scope == parent->parent && parent->id != 0;
	else if (fits)
		fits = owner->scope == scope->parent;
	reader_require(reader, fits, "owner of a scope");
}

/* An event is armed beside a token that waits or holds in the same scope, or beside the scope. */
static void check_host(struct reader *reader, const struct instance *inst,
		       const struct token *token)
{
	const struct token *host = instance_token(inst, token->host);
	bool fits = host && token->state == TOKEN_WAITING && host->scope == token->scope;

	if (fits && host != token)
		fits = !host->host && host->id < token->id &&
		       (host->state == TOKEN_WAITING || host->state == TOKEN_HOLDING);
	reader_require(reader, fits, "host of a token");
}

/* What a token holds for is there. */
static void check_links(struct reader *reader, const struct instance *inst)
{
	bool *held = arena_zalloc(reader->arena, inst->token_count + 1);

	for (uint32_t i = 1; i < inst->scope_count && !reader->wrong; i++) {
		check_owner(reader, inst, &inst->scopes[i]);
		if (!reader->wrong)
			held[instance_token(inst, inst->scopes[i].owner) - inst->tokens] = true;
	}
	for (uint32_t i = 0; i < inst->token_count && !reader->wrong; i++) {
		if (!inst->tokens[i].host)
			continue;
		check_host(reader, inst, &inst->tokens[i]);
		if (!reader->wrong)
			held[instance_token(inst, inst->tokens[i].host) - inst->tokens] = true;
	}
	for (uint32_t i = 0; i < inst->token_count && !reader->wrong; i++)
		reader_require(reader, inst->tokens[i].state != TOKEN_HOLDING || held[i],
			       "token that holds for nothing");
}

static void read_aliases(struct reader *reader, const msgpack_object *value, struct instance *inst)
{
	const msgpack_object *items = read_array(reader, value, UINT32_MAX, &inst->alias_count,
						 "aliases");

	if (!inst->alias_count)
		return;
	inst->aliases = arena_zalloc(reader->arena, inst->alias_count * sizeof(*inst->aliases));
	for (uint32_t i = 0; i < inst->alias_count && !reader->wrong; i++) {
		const msgpack_object *field = read_array(reader, &items[i], 3, NULL, "alias");

		if (!field)
			return;
		inst->aliases[i].name = read_str(reader, &field[0], true, "alias name");
		inst->aliases[i].value = read_str(reader, &field[1], true, "alias value");
		inst->aliases[i].unique = read_bool(reader, &field[2], "alias unique");
	}
}

static void read_reply(struct reader *reader, const msgpack_object *value,
		       struct reply_address *reply)
{
	const msgpack_object *field;

	if (value_is_nil(value))
		return;
	field = read_array(reader, value, 5, NULL, "reply");
	if (!field)
		return;
	reply->channel = read_str(reader, &field[0], false, "reply channel");
	reply->connection = read_str(reader, &field[1], false, "reply connection");
	reply->transport = read_str(reader, &field[2], false, "reply transport");
	reply->destination = read_str(reader, &field[3], false, "reply destination");
	reply->correlation = field[4];
}

static void read_failure(struct reader *reader, const msgpack_object *value, struct instance *inst)
{
	const msgpack_object *field;

	reader_require(reader, inst->status != INSTANCE_FAILED || !value_is_nil(value), "failure");
	if (value_is_nil(value))
		return;
	field = read_array(reader, value, 4, NULL, "failure");
	if (!field)
		return;
	inst->failure_code = read_str(reader, &field[0], false, "failure code");
	inst->failure_detail = read_str(reader, &field[1], false, "failure detail");
	inst->failure_node = read_str(reader, &field[2], false, "failure node");
	inst->failure_event = field[3];
}

static void read_instance(struct reader *reader, const msgpack_object *root, struct instance *inst)
{
	const msgpack_object *field = read_array(reader, root, SNAPSHOT_FIELDS, NULL,
						 "number of fields");

	if (!field)
		return;
	reader->format = read_int(reader, &field[0], SNAPSHOT_OLDEST, SNAPSHOT_FORMAT, "format");
	inst->deployment = read_str(reader, &field[1], true, "deployment");
	inst->process = read_str(reader, &field[2], true, "process");
	inst->status = (enum instance_status)read_int(reader, &field[3], INSTANCE_SUSPENDED,
						      INSTANCE_FAILED, "status");
	inst->started_us = read_int(reader, &field[4], INT64_MIN, INT64_MAX, "start time");
	inst->next_token = (uint32_t)read_int(reader, &field[5], 0, UINT32_MAX, "next token");
	inst->next_scope = (uint32_t)read_int(reader, &field[6], 1, UINT32_MAX, "next scope");
	read_scopes(reader, &field[8], inst);
	read_tokens(reader, &field[7], inst);
	if (!reader->wrong)
		check_links(reader, inst);
	read_aliases(reader, &field[9], inst);
	read_reply(reader, &field[10], &inst->reply);
	inst->traceparent = read_str(reader, &field[11], false, "traceparent");
	inst->tracestate = read_str(reader, &field[12], false, "tracestate");
	read_failure(reader, &field[13], inst);
}

enum result snapshot_unpack(struct arena *arena, struct str bytes, struct id id, struct str tenant,
			    int64_t version, struct instance **out, struct error *err)
{
	const struct value_limits limits = VALUE_LIMITS_OWN;
	struct reader reader = {arena, SNAPSHOT_FORMAT, NULL};
	msgpack_object root = reader_nil;
	struct error inner = ERROR_INIT;
	struct instance *inst;

	if (bytes.len >= 2 && ((uint8_t)bytes.ptr[0] & 0xf0) == 0x90 &&
	    (uint8_t)bytes.ptr[1] < 0x80 &&
	    (bytes.ptr[1] < SNAPSHOT_OLDEST || bytes.ptr[1] > SNAPSHOT_FORMAT))
		return error_set(err, RESULT_FATAL, CODE_RUNTIME_SNAPSHOT_INVALID,
				 "snapshot has format %d; this release reads formats %d to %d",
				 bytes.ptr[1], SNAPSHOT_OLDEST, SNAPSHOT_FORMAT);
	if (value_unpack(arena, bytes, false, &limits, &root, &inner) != RESULT_OK)
		return error_set(err, RESULT_FATAL, CODE_RUNTIME_SNAPSHOT_INVALID,
				 "snapshot of %zu bytes: %s", bytes.len, inner.text);
	inst = arena_zalloc(arena, sizeof(*inst));
	inst->id = id;
	inst->tenant = tenant;
	inst->version = version;
	read_instance(&reader, &root, inst);
	if (reader.wrong)
		return error_set(err, RESULT_FATAL, CODE_RUNTIME_SNAPSHOT_INVALID,
				 "snapshot of %zu bytes: wrong %s", bytes.len, reader.wrong);
	*out = inst;
	return RESULT_OK;
}
