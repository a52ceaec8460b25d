/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/random_instance.h"

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

static void random_tokens(struct random_source *random, struct arena *arena, struct instance *inst)
{
	inst->token_count = (uint32_t)random_below(random, 5);
	inst->tokens = arena_zalloc(arena, (inst->token_count + 1) * sizeof(*inst->tokens));
	for (uint32_t i = 0; i < inst->token_count; i++) {
		struct token *token = &inst->tokens[i];

		token->id = inst->next_token += 1 + (uint32_t)random_below(random, 3);
		token->scope = inst->scopes[random_below(random, inst->scope_count)].id;
		token->node = random_word(random, arena);
		token->state = TOKEN_WAITING;
		token->key_count = (uint32_t)random_below(random, 3);
		token->keys = arena_zalloc(arena, (token->key_count + 1) * sizeof(*token->keys));
		for (uint32_t k = 0; k < token->key_count; k++)
			token->keys[k] = (struct instance_wait_key){random_word(random, arena),
								    random_word(random, arena)};
	}
	inst->next_token++;
}

static void random_scopes(struct random_source *random, struct arena *arena, struct instance *inst)
{
	inst->scope_count = 1 + (uint32_t)random_below(random, 4);
	inst->scopes = arena_zalloc(arena, inst->scope_count * sizeof(*inst->scopes));
	for (uint32_t i = 0; i < inst->scope_count; i++) {
		struct scope *scope = &inst->scopes[i];

		scope->id = i ? scope[-1].id + 1 + (uint32_t)random_below(random, 3) : 0;
		scope->parent = i ? inst->scopes[random_below(random, i)].id : 0;
		scope->node = i ? random_word(random, arena) : STR_NONE;
		scope->variable_count = (uint32_t)random_below(random, 20);
		scope->variables = arena_zalloc(arena, (scope->variable_count + 1) *
							       sizeof(*scope->variables));
		for (uint32_t k = 0; k < scope->variable_count; k++) {
			scope->variables[k].name = str_of(arena_printf(arena, "variable%u", k));
			scope->variables[k].value = random_value(random, arena, 4, true);
		}
		inst->next_scope = scope->id + 1;
	}
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
	random_scopes(random, arena, inst);
	random_tokens(random, arena, inst);
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
		if (inst->token_count)
			inst->tokens[0].state = TOKEN_READY;
	}
	return inst;
}

static bool str_same(struct str a, struct str b)
{
	return !a.ptr == !b.ptr && str_equal(a, b);
}

static bool token_equal(const struct token *a, const struct token *b)
{
	if (a->id != b->id || a->scope != b->scope || !str_same(a->node, b->node) ||
	    a->state != b->state || a->key_count != b->key_count)
		return false;
	for (uint32_t i = 0; i < a->key_count; i++)
		if (!str_same(a->keys[i].name, b->keys[i].name) ||
		    !str_same(a->keys[i].value, b->keys[i].value))
			return false;
	return true;
}

static bool scope_equal(const struct scope *a, const struct scope *b)
{
	if (a->id != b->id || a->parent != b->parent || !str_same(a->node, b->node) ||
	    a->variable_count != b->variable_count)
		return false;
	for (uint32_t i = 0; i < a->variable_count; i++)
		if (!str_same(a->variables[i].name, b->variables[i].name) ||
		    !value_equal(&a->variables[i].value, &b->variables[i].value))
			return false;
	return true;
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
