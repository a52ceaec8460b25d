/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/random_instance.h"

#include "base/iso8601.h"

static struct str random_word(struct random_source *random, struct arena *arena)
{
	static const char *const words[] = {
		"",
		"a",
		"order",
		"größe",
		"key with spaces",
		"x\xff\xfe",
		"0",
		"a rather longer name than the thirty-one bytes of a short string"};

	if (random_below(random, 2))
		return str_of(words[random_below(random, ARRAY_LEN(words))]);
	return str_of(arena_printf(arena, "w%llu", (unsigned long long)random_below(random, 1000)));
}

static struct str random_option(struct random_source *random, struct arena *arena)
{
	return random_below(random, 2) ? random_word(random, arena) : STR_NONE;
}

static void random_keys(struct random_source *random, struct arena *arena, struct token *token)
{
	token->key_count = (uint32_t)random_below(random, 3);
	token->keys = arena_zalloc(arena, (token->key_count + 1) * sizeof(*token->keys));
	for (uint32_t k = 0; k < token->key_count; k++)
		token->keys[k] = (struct instance_wait_key){random_word(random, arena),
							    random_word(random, arena)};
}

static void random_timer(struct random_source *random, struct token *token)
{
	if (random_below(random, 3))
		return;
	token->due_us = 1 + (int64_t)random_below(random, ISO_LAST_US);
	if (random_below(random, 2))
		return;
	token->period_us = 1 + (int64_t)random_below(random, INT64_MAX);
	token->remaining = random_below(random, 2) ? -1 : 1 + (int64_t)random_below(random, 1000);
}

static void random_locals(struct random_source *random, struct arena *arena, struct token *token)
{
	token->local_count = random_below(random, 3) ? 0 : (uint32_t)random_below(random, 4);
	token->locals = arena_zalloc(arena, (token->local_count + 1) * sizeof(*token->locals));
	for (uint32_t k = 0; k < token->local_count; k++)
		token->locals[k] = (struct scope_variable){str_of(arena_printf(arena, "local%u", k)),
							   random_value(random, arena, 2, true)};
}

static void random_ready(struct token *token)
{
	token->state = TOKEN_READY;
	token->due_us = token->period_us = token->remaining = 0;
	token->local_count = 0;
}

/* A token of its own, that waits or joins in some scope. */
static struct token *random_token(struct random_source *random, struct arena *arena,
				  struct instance *inst)
{
	struct token *token = &inst->tokens[inst->token_count++];

	token->id = inst->next_token += 1 + (uint32_t)random_below(random, 3);
	token->scope = inst->scopes[random_below(random, inst->scope_count)].id;
	token->node = random_word(random, arena);
	if (random_below(random, 4) == 0) {
		token->state = TOKEN_JOINING;
		token->flow = random_word(random, arena);
	} else {
		token->state = TOKEN_WAITING;
		random_keys(random, arena, token);
		random_timer(random, token);
		random_locals(random, arena, token);
	}
	return token;
}

/* An event armed beside the token, or beside its scope. */
static void random_event(struct random_source *random, struct arena *arena, struct instance *inst,
			 const struct token *host)
{
	struct token *token = &inst->tokens[inst->token_count++];

	token->id = inst->next_token += 1;
	token->scope = host->scope;
	token->host = host->state == TOKEN_WAITING && random_below(random, 2) ? host->id : token->id;
	token->node = random_word(random, arena);
	token->state = TOKEN_WAITING;
	random_keys(random, arena, token);
	random_timer(random, token);
}

static void random_variables(struct random_source *random, struct arena *arena, struct scope *scope)
{
	scope->variable_count = (uint32_t)random_below(random, 20);
	scope->variables = arena_zalloc(arena,
					(scope->variable_count + 1) * sizeof(*scope->variables));
	for (uint32_t k = 0; k < scope->variable_count; k++) {
		scope->variables[k].name = str_of(arena_printf(arena, "variable%u", k));
		scope->variables[k].value = random_value(random, arena, 4, true);
	}
}

/* A scope and the token that holds for it; for a loop, a run in it too. */
static void random_scope(struct random_source *random, struct arena *arena, struct instance *inst)
{
	struct token *owner = &inst->tokens[inst->token_count++];
	uint32_t parent = inst->scopes[random_below(random, inst->scope_count)].id;
	bool loop = random_below(random, 3) == 0;

	owner->id = inst->next_token += 1 + (uint32_t)random_below(random, 3);
	owner->scope = parent;
	owner->node = random_word(random, arena);
	owner->state = TOKEN_HOLDING;
	for (int i = 0; i <= loop; i++) {
		struct scope *scope = &inst->scopes[inst->scope_count++];

		scope->id = inst->next_scope + (uint32_t)random_below(random, 3);
		scope->parent = i ? scope[-1].id : parent;
		scope->owner = owner->id;
		scope->iteration = i ? 1 + (uint32_t)random_below(random, 5) : 0;
		scope->node = owner->node;
		if (!loop && random_below(random, 3) == 0)
			scope->process = random_word(random, arena);
		random_variables(random, arena, scope);
		inst->next_scope = scope->id + 1;
	}
}

static void random_state(struct random_source *random, struct arena *arena, struct instance *inst)
{
	inst->scopes = arena_zalloc(arena, 10 * sizeof(*inst->scopes));
	inst->tokens = arena_zalloc(arena, 20 * sizeof(*inst->tokens));
	inst->scope_count = 1;
	inst->next_scope = 1;
	random_variables(random, arena, &inst->scopes[0]);
	for (uint64_t n = random_below(random, 4); n > 0; n--)
		random_scope(random, arena, inst);
	for (uint64_t n = random_below(random, 5); n > 0; n--) {
		struct token *token = random_token(random, arena, inst);

		if (random_below(random, 3) == 0)
			random_event(random, arena, inst, token);
	}
	inst->next_token++;
}

struct instance *random_instance(struct random_source *random, struct arena *arena)
{
	struct instance *inst = arena_zalloc(arena, sizeof(*inst));

	inst->id.bytes[0] = (uint8_t)random_next(random);
	inst->tenant = STR("acme");
	inst->deployment = random_word(random, arena);
	inst->process = random_word(random, arena);
	inst->status = (enum instance_status)(INSTANCE_SUSPENDED + random_below(random, 4));
	inst->version = random_int(random);
	inst->started_us = random_int(random);
	random_state(random, arena, inst);
	inst->alias_count = (uint32_t)random_below(random, 4);
	inst->aliases = arena_zalloc(arena, (inst->alias_count + 1) * sizeof(*inst->aliases));
	for (uint32_t i = 0; i < inst->alias_count; i++)
		inst->aliases[i] = (struct instance_alias){random_word(random, arena),
							   random_word(random, arena),
							   random_below(random, 2)};
	if (random_below(random, 2))
		inst->reply = (struct reply_address){
			random_option(random, arena), random_option(random, arena),
			random_option(random, arena), random_option(random, arena),
			random_value(random, arena, 1, true)};
	inst->traceparent = random_option(random, arena);
	inst->tracestate = random_option(random, arena);
	if (inst->status == INSTANCE_FAILED) {
		inst->failure_code = STR("SUTRA.RUNTIME.STEP.FAILED");
		inst->failure_detail = random_option(random, arena);
		inst->failure_node = random_option(random, arena);
		inst->failure_event = random_value(random, arena, 3, true);
		if (inst->token_count && inst->tokens[0].state == TOKEN_WAITING &&
		    (inst->token_count == 1 || inst->tokens[1].host != inst->tokens[0].id))
			random_ready(&inst->tokens[0]);
	}
	return inst;
}

static bool str_same(struct str a, struct str b)
{
	return !a.ptr == !b.ptr && str_equal(a, b);
}

static bool variables_equal(const struct scope_variable *a, const struct scope_variable *b,
			    uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!str_same(a[i].name, b[i].name) || !value_equal(&a[i].value, &b[i].value))
			return false;
	return true;
}

static bool token_equal(const struct token *a, const struct token *b)
{
	if (a->id != b->id || a->scope != b->scope || !str_same(a->node, b->node) ||
	    a->state != b->state || a->key_count != b->key_count || a->host != b->host ||
	    !str_same(a->flow, b->flow) || a->due_us != b->due_us || a->period_us != b->period_us ||
	    a->remaining != b->remaining || a->local_count != b->local_count)
		return false;
	for (uint32_t i = 0; i < a->key_count; i++)
		if (!str_same(a->keys[i].name, b->keys[i].name) ||
		    !str_same(a->keys[i].value, b->keys[i].value))
			return false;
	return variables_equal(a->locals, b->locals, a->local_count);
}

static bool scope_equal(const struct scope *a, const struct scope *b)
{
	if (a->id != b->id || a->parent != b->parent || !str_same(a->node, b->node) ||
	    a->variable_count != b->variable_count || a->owner != b->owner ||
	    a->iteration != b->iteration || !str_same(a->process, b->process))
		return false;
	return variables_equal(a->variables, b->variables, a->variable_count);
}

static bool reply_equal(const struct reply_address *a, const struct reply_address *b)
{
	return str_same(a->channel, b->channel) && str_same(a->connection, b->connection) &&
	       str_same(a->transport, b->transport) && str_same(a->destination, b->destination) &&
	       value_equal(&a->correlation, &b->correlation);
}

bool instance_equal(const struct instance *a, const struct instance *b)
{
	if (!id_equal(a->id, b->id) || !str_same(a->tenant, b->tenant) ||
	    !str_same(a->deployment, b->deployment) || !str_same(a->process, b->process) ||
	    a->status != b->status || a->version != b->version || a->started_us != b->started_us ||
	    a->next_token != b->next_token || a->next_scope != b->next_scope ||
	    a->token_count != b->token_count || a->scope_count != b->scope_count ||
	    a->alias_count != b->alias_count || !reply_equal(&a->reply, &b->reply) ||
	    !str_same(a->traceparent, b->traceparent) || !str_same(a->tracestate, b->tracestate) ||
	    !str_same(a->failure_code, b->failure_code) ||
	    !str_same(a->failure_detail, b->failure_detail) ||
	    !str_same(a->failure_node, b->failure_node) ||
	    !value_equal(&a->failure_event, &b->failure_event))
		return false;
	for (uint32_t i = 0; i < a->token_count; i++)
		if (!token_equal(&a->tokens[i], &b->tokens[i]))
			return false;
	for (uint32_t i = 0; i < a->scope_count; i++)
		if (!scope_equal(&a->scopes[i], &b->scopes[i]))
			return false;
	for (uint32_t i = 0; i < a->alias_count; i++)
		if (!str_same(a->aliases[i].name, b->aliases[i].name) ||
		    !str_same(a->aliases[i].value, b->aliases[i].value) ||
		    a->aliases[i].unique != b->aliases[i].unique)
			return false;
	return true;
}
