/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an instance begins, and what a failed step leaves behind.
 *
 * A failed step leaves the instance as it was before, stamped FAILED with the reason; its waits and timers are given
 * up, and its tokens keep their keys and times, so that a restore registers the same again. A first step has no instance before it: one is made
 * that stands on its start event and keeps the message as a value, so that a restore can run the step again (G12).
 */
#include "engine/failed.h"

static uint32_t count_waiting(const struct instance *inst)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < inst->token_count; i++)
		count += inst->tokens[i].state == TOKEN_WAITING;
	return count;
}

const struct node *wait_node(const struct deployment *deployment, const struct instance *inst,
			     const struct token *token)
{
	const struct node *node = NULL;

	if (token->state == TOKEN_WAITING)
		node = instance_node(deployment, inst, token);
	if (node && node_is_timer(node))
		return node->timer && token->due_us ? node : NULL;
	return node && node_is_wait(node) && node->source ? node : NULL;
}

/* Where the token waits for a message. */
static const struct node *message_node(const struct deployment *deployment,
				       const struct instance *inst, const struct token *token)
{
	const struct node *node = wait_node(deployment, inst, token);

	return node && node->source ? node : NULL;
}

static struct step_wait token_wait(const struct token *token, const struct node *node)
{
	return (struct step_wait){token->id, node, token->keys, token->key_count};
}

struct step_wait *instance_waits(struct arena *arena, const struct instance *inst,
				 const struct deployment *deployment, uint32_t *count)
{
	struct step_wait *waits;

	*count = 0;
	if (!count_waiting(inst))
		return NULL;
	waits = arena_alloc(arena, count_waiting(inst) * sizeof(*waits));
	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct node *node = message_node(deployment, inst, token);

		if (node && token->key_count)
			waits[(*count)++] = token_wait(token, node);
	}
	return waits;
}

static struct step_timer token_timer(const struct deployment *deployment,
				     const struct instance *inst, const struct token *token)
{
	return (struct step_timer){token->id, instance_node(deployment, inst, token), token->due_us};
}

struct step_timer *instance_timers(struct arena *arena, const struct instance *inst,
				   const struct deployment *deployment, uint32_t *count)
{
	struct step_timer *timers;

	*count = 0;
	if (!count_waiting(inst))
		return NULL;
	timers = arena_alloc(arena, count_waiting(inst) * sizeof(*timers));
	for (uint32_t i = 0; i < inst->token_count; i++)
		if (inst->tokens[i].state == TOKEN_WAITING && inst->tokens[i].due_us)
			timers[(*count)++] = token_timer(deployment, inst, &inst->tokens[i]);
	return timers;
}

/* Whether a token of `before` has left what it waited for. */
static bool has_left(const struct token *token, const struct instance *after)
{
	const struct token *now = instance_token(after, token->id);

	return !now || now->fresh || now->state != TOKEN_WAITING;
}

static void timers_changed(const struct step_env *env, const struct instance *before,
			   const struct instance *after, struct step_result *out)
{
	uint32_t count = 0;

	out->timers_removed_count = out->timers_added_count = 0;
	if (before)
		out->timers_removed = instance_timers(env->arena, before, env->deployment, &count);
	for (uint32_t i = 0; i < count; i++)
		if (has_left(instance_token(before, out->timers_removed[i].token), after))
			out->timers_removed[out->timers_removed_count++] = out->timers_removed[i];
	out->timers_added = instance_timers(env->arena, after, env->deployment, &count);
	for (uint32_t i = 0; i < count; i++)
		if (instance_token(after, out->timers_added[i].token)->fresh)
			out->timers_added[out->timers_added_count++] = out->timers_added[i];
}

void instance_waits_changed(const struct step_env *env, const struct instance *before,
			    const struct instance *after, struct step_result *out)
{
	uint32_t waiting = before ? count_waiting(before) : 0;

	out->waits_removed = waiting ? arena_alloc(env->arena,
						   waiting * sizeof(*out->waits_removed))
				     : NULL;
	for (uint32_t i = 0; waiting && i < before->token_count; i++) {
		const struct token *token = &before->tokens[i];
		const struct node *node = message_node(env->deployment, before, token);

		if (node && token->key_count && has_left(token, after))
			out->waits_removed[out->waits_removed_count++] = token_wait(token, node);
	}
	waiting = count_waiting(after);
	out->waits_added = waiting ? arena_alloc(env->arena, waiting * sizeof(*out->waits_added))
				   : NULL;
	for (uint32_t i = 0; i < after->token_count; i++) {
		const struct token *token = &after->tokens[i];
		const struct node *node = message_node(env->deployment, after, token);

		if (node && token->key_count && token->fresh)
			out->waits_added[out->waits_added_count++] = token_wait(token, node);
	}
	timers_changed(env, before, after, out);
}

void instance_calls_changed(const struct step_env *env, const struct instance *before,
			    const struct instance *after, uint32_t answered, struct step_result *out)
{
	for (uint32_t i = 0; before && i < before->token_count; i++) {
		const struct token *token = &before->tokens[i];
		const struct node *node = instance_node(env->deployment, before, token);
		struct step_withdrawn request;

		if (token->id == answered || !has_left(token, after) || !node || !node->send || !token_request(token, &request))
			continue;
		request.channel = node->send->channel;
		if (!out->withdrawn)
			out->withdrawn = arena_alloc(env->arena, before->token_count *
									 sizeof(*out->withdrawn));
		out->withdrawn[out->withdrawn_count++] = request;
	}
}

static bool alias_is_unique(const struct node *node, struct str name)
{
	for (uint32_t i = 0; i < node->alias_count; i++)
		if (node->aliases[i].unique && str_equal(node->aliases[i].name, name))
			return true;
	return false;
}

static struct instance *instance_new(const struct step_env *env, struct id id, struct str tenant,
				     const struct node *start, const struct event *event)
{
	struct instance *inst = arena_zalloc(env->arena, sizeof(*inst));

	inst->id = id;
	inst->tenant = tenant;
	inst->deployment = env->deployment->id;
	inst->process = start->process->id;
	inst->version = 1;
	inst->started_us = env->now_us;
	inst->tokens = arena_zalloc(env->arena, sizeof(*inst->tokens));
	inst->tokens[0] = (struct token){.id = 1, .node = start->id, .state = TOKEN_READY};
	inst->token_count = 1;
	inst->next_token = 2;
	inst->scopes = arena_zalloc(env->arena, sizeof(*inst->scopes));
	inst->scope_count = 1;
	inst->next_scope = 1;
	inst->reply = event->reply;
	inst->traceparent = event->traceparent;
	inst->tracestate = event->tracestate;
	return inst;
}

enum result first_instance(const struct step_env *env, struct id id, struct str tenant,
			   const struct node *start, const struct event *event,
			   struct instance **out, struct error *err)
{
	struct instance *inst = instance_new(env, id, tenant, start, event);
	struct instance_wait_key *keys;
	uint32_t count;
	enum result result = engine_correlate(env, tenant, start, event, &keys, &count, err);

	if (result != RESULT_OK)
		return result;
	if (count)
		inst->aliases = arena_alloc(env->arena, count * sizeof(*inst->aliases));
	for (uint32_t i = 0; i < count; i++)
		inst->aliases[i] = (struct instance_alias){keys[i].name, keys[i].value,
							   alias_is_unique(start, keys[i].name)};
	inst->alias_count = count;
	*out = inst;
	return RESULT_OK;
}

static void instance_stamp(const struct step_env *env, struct instance *inst,
			   const struct error *why, const struct node *at, struct step_result *out)
{
	inst->status = INSTANCE_FAILED;
	inst->failure_code = str_of(code_text(why->code));
	inst->failure_detail = arena_str(env->arena, str_of(why->text));
	inst->failure_node = at ? at->id : STR_NONE;
	out->inst = inst;
	out->failed = true;
	out->failure = *why;
	out->failure_node = at;
}

void instance_fail(const struct step_env *env, const struct instance *before,
		   const struct error *why, const struct node *at, struct step_result *out)
{
	struct instance *inst = arena_memdup(env->arena, before, sizeof(*before));

	*out = (struct step_result){.inst = NULL};
	inst->version = before->version + 1;
	/* The waits of an instance that was FAILED already are gone already. */
	if (before->status != INSTANCE_FAILED) {
		out->waits_removed = instance_waits(env->arena, before, env->deployment,
						    &out->waits_removed_count);
		out->timers_removed = instance_timers(env->arena, before, env->deployment,
						      &out->timers_removed_count);
	}
	instance_stamp(env, inst, why, at, out);
}

void engine_fail(const struct step_env *env, const struct instance *before, struct id id,
		 struct str tenant, const struct node *start, const struct event *event,
		 const struct error *why, const struct node *at, struct step_result *out)
{
	struct error ignored = ERROR_INIT;
	struct instance *inst;

	if (before) {
		instance_fail(env, before, why, at, out);
		return;
	}
	/* The aliases were evaluated before in the step that failed; should they fail now, it stands without any. */
	if (first_instance(env, id, tenant, start, event, &inst, &ignored) != RESULT_OK)
		inst = instance_new(env, id, tenant, start, event);
	*out = (struct step_result){.aliases_added = inst->aliases,
				    .aliases_added_count = inst->alias_count};
	inst->failure_event = event_to_value(env->arena, event);
	instance_stamp(env, inst, why, at, out);
}
