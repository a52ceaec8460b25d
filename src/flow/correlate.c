/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage correlate. A message is for whoever subscribes to its channel and type: first the waits of parked instances, found
 * by a business key, then a start event.
 *
 * Event ids are taken by the rules of all live deployments, not only of the one that will have the effect: a redelivery
 * after a hot deploy with another dedupKey must still meet the inbox row of its first delivery (G5).
 *
 * Everything here is evaluated over the message alone, so an error in it is the message's (it is rejected), and it gives
 * the same answer on every replica.
 */
#include "flow/correlate.h"

static bool subscription_takes(const struct subscription *subscription, const struct event *event)
{
	return source_takes_type(subscription->node->source, event->type);
}

static struct step_env env_for(const struct step_env *env, const struct deployment *deployment)
{
	struct step_env own = *env;

	own.deployment = deployment;
	return own;
}

static void add_event_id(struct correlation *c, struct str tenant, const struct event *event, struct str id)
{
	if (!id.len)
		return;
	for (uint32_t i = 0; i < c->inbox_key_count; i++)
		if (str_equal(c->event_ids[i], id))
			return;
	c->event_ids[c->inbox_key_count] = id;
	c->inbox_keys[c->inbox_key_count++] = store_inbox_key(tenant, event->channel, id);
}

/* What one subscription contributes: its validation, its event id, its keys (waits only). */
static enum result add_subscription(struct correlation *c, const struct step_env *env, struct str tenant,
				    const struct subscription *sub, bool is_wait, const struct event *event,
				    struct error *err)
{
	struct step_env own = env_for(env, sub->deployment);
	struct instance_wait_key *keys;
	struct correlation_key *grown;
	enum result result;
	uint32_t count;
	struct str id = c->forced_id;

	result = engine_validate(&own, tenant, sub->node, event, err);
	if (result == RESULT_OK && !id.len)
		result = engine_dedup_key(&own, tenant, sub->node, event, &id, err);
	if (result != RESULT_OK)
		return result;
	add_event_id(c, tenant, event, id.len ? id : event->id);
	if (!is_wait)
		return RESULT_OK;
	c->has_waits = true;
	result = engine_correlate(&own, tenant, sub->node, event, &keys, &count, err);
	if (result != RESULT_OK || !count)
		return result;
	grown = arena_alloc(env->arena, (c->key_count + count) * sizeof(*grown));
	if (c->key_count)
		memcpy(grown, c->keys, c->key_count * sizeof(*grown));
	c->keys = grown;
	if (!c->key_count)
		c->order_key = store_alias_key(tenant, keys[0].name, keys[0].value);
	for (uint32_t i = 0; i < count; i++)
		c->keys[c->key_count++] = (struct correlation_key){
			store_wait_key(tenant, event->channel, keys[i].name, keys[i].value), keys[i].name,
			keys[i].value, sub};
	return RESULT_OK;
}

static enum result add_all(struct correlation *c, const struct step_env *env, struct str tenant,
			   const struct subscription *subs, uint32_t count, bool is_wait,
			   const struct event *event, struct error *err)
{
	for (uint32_t i = 0; i < count; i++) {
		enum result result;

		if (!subscription_takes(&subs[i], event))
			continue;
		result = add_subscription(c, env, tenant, &subs[i], is_wait, event, err);
		if (result != RESULT_OK)
			return result;
	}
	return RESULT_OK;
}

static void add_starts(struct correlation *c, struct arena *arena, const struct route *route, const struct event *event)
{
	c->starts = arena_alloc(arena, (route->start_count + 1) * sizeof(*c->starts));
	for (uint32_t i = 0; i < route->start_count; i++)
		if (subscription_takes(&route->starts[i], event))
			c->starts[c->start_count++] = &route->starts[i];
	c->start = c->start_count ? c->starts[0] : NULL;
}

static const struct subscription *first_taker(const struct subscription *subs, uint32_t count,
					      const struct event *event)
{
	for (uint32_t i = 0; i < count; i++)
		if (subscription_takes(&subs[i], event))
			return &subs[i];
	return NULL;
}

enum result correlate_message(const struct step_env *env, struct str tenant, const struct route *route,
			      const struct event *event, struct str event_id, struct correlation **out,
			      struct error *err)
{
	uint32_t most = route->start_count + route->draining_start_count + route->wait_count + 1;
	struct correlation *c = arena_zalloc(env->arena, sizeof(*c));
	enum result result;

	c->forced_id = event_id;
	c->event_ids = arena_alloc(env->arena, most * sizeof(*c->event_ids));
	c->inbox_keys = arena_alloc(env->arena, most * sizeof(*c->inbox_keys));
	result = add_all(c, env, tenant, route->waits, route->wait_count, true, event, err);
	if (result == RESULT_OK)
		result = add_all(c, env, tenant, route->starts, route->start_count, false, event, err);
	if (result == RESULT_OK)
		result = add_all(c, env, tenant, route->draining_starts, route->draining_start_count, false,
				 event, err);
	if (result != RESULT_OK)
		return result;
	add_starts(c, env->arena, route, event);
	c->draining_start =
		!c->start && first_taker(route->draining_starts, route->draining_start_count, event);
	if (!c->start && !c->has_waits)
		return c->draining_start
			       ? error_set(err, RESULT_REJECT, CODE_INBOUND_NO_ACTIVE_DEPLOYMENT,
					   "only a draining deployment starts on this message")
			       : error_set(err, RESULT_REJECT, CODE_INBOUND_NO_START_EVENT_FOR_MESSAGE_TYPE,
					   "nobody subscribes to message type '%.*s' on channel '%.*s'",
					   STR_ARG(event->type), STR_ARG(event->channel));
	c->wait_keys = arena_alloc(env->arena, (c->key_count + 1) * sizeof(*c->wait_keys));
	for (uint32_t i = 0; i < c->key_count; i++)
		c->wait_keys[i] = c->keys[i].key;
	*out = c;
	return RESULT_OK;
}

/*
 * A key says channel, alias name and value; two nodes may share it while they take different message types. So a row counts
 * only for the subscription that asked under its key and is its own node and deployment.
 */
static const struct correlation_key *wait_asker(const struct correlation *c, const struct store_resolve *resolve,
						const struct store_wait *wait)
{
	struct id key = resolve->wait_keys[wait->key];

	for (uint32_t i = 0; i < c->key_count; i++)
		if (id_equal(c->keys[i].key, key) && str_equal(c->keys[i].wait->node->id, wait->node) &&
		    str_equal(c->keys[i].wait->deployment->id, wait->deployment))
			return &c->keys[i];
	return NULL;
}

/* Oldest first; a total order, so that every replica chooses the same. */
static int wait_compare(const struct store_wait *a, const struct store_wait *b)
{
	int order = (a->created_us > b->created_us) - (a->created_us < b->created_us);

	if (!order)
		order = id_compare(a->instance, b->instance);
	return order ? order : (a->token > b->token) - (a->token < b->token);
}

/* --- several --- */

struct envelope_note correlate_note(struct str tenant, const struct correlation *c, const struct store_resolve *resolve,
				    const struct store_wait *wait)
{
	const struct correlation_key *asker = wait_asker(c, resolve, wait);

	return (struct envelope_note){
		.event_id = c->forced_id,
		.aim = ENVELOPE_AIM_WAIT,
		.instance = wait->instance,
		.token = wait->token,
		.wait_key = asker->key,
		.alias_key = store_alias_key(tenant, asker->name, asker->value),
		.node = wait->node,
		.deployment = wait->deployment,
	};
}

static struct envelope_note start_note(const struct correlation *c, const struct subscription *start)
{
	return (struct envelope_note){
		.event_id = c->forced_id,
		.aim = ENVELOPE_AIM_START,
		.node = start->node->id,
		.deployment = start->deployment->id,
		.process = start->node->process->id,
	};
}

/* Processes of one name in two versions of a module are one: waits of both are live, and the newer one's start. */
static bool same_process(const struct subscription *a, const struct subscription *b)
{
	return str_equal(a->deployment->module, b->deployment->module) &&
	       str_equal(a->node->process->id, b->node->process->id);
}

/* A wait may be found by two of its aliases. */
static void note_wait(struct correlate_targets *t, struct str tenant, const struct correlation *c,
		      const struct store_resolve *resolve, const struct store_wait *wait)
{
	for (uint32_t i = 0; i < t->wait_count; i++)
		if (id_equal(t->notes[i].instance, wait->instance) && t->notes[i].token == wait->token)
			return;
	t->notes[t->wait_count++] = correlate_note(tenant, c, resolve, wait);
}

const struct store_wait *correlate_oldest(const struct correlation *c, const struct store_resolve *resolve,
					  const struct subscription *of)
{
	const struct store_wait *best = NULL;

	for (uint32_t i = 0; resolve && i < resolve->wait_count; i++) {
		const struct store_wait *wait = &resolve->waits[i];
		const struct correlation_key *asker = wait_asker(c, resolve, wait);

		if (asker && (!of || same_process(asker->wait, of)) && (!best || wait_compare(wait, best) < 0))
			best = wait;
	}
	return best;
}

/* What the rule of the oldest wait of the process gives; true if there is one. `plain`: it is that one alone. */
static bool note_process(struct correlate_targets *t, struct str tenant, const struct correlation *c,
			 const struct store_resolve *resolve, const struct subscription *of)
{
	const struct store_wait *oldest = correlate_oldest(c, resolve, of);

	if (!oldest)
		return false;
	if (wait_asker(c, resolve, oldest)->wait->node->source->match != MATCH_ALL) {
		t->wait = oldest;
		note_wait(t, tenant, c, resolve, oldest);
		return true;
	}
	t->verdict = CORRELATE_SEVERAL;
	for (uint32_t i = 0; i < resolve->wait_count; i++) {
		const struct correlation_key *asker = wait_asker(c, resolve, &resolve->waits[i]);

		if (asker && (!of || same_process(asker->wait, of)) && asker->wait->node->source->match == MATCH_ALL)
			note_wait(t, tenant, c, resolve, &resolve->waits[i]);
	}
	return true;
}

/* Whether a wait of the process was asked for before the `before`th key. */
static bool is_seen(const struct correlation *c, uint32_t before)
{
	for (uint32_t i = 0; i < before; i++)
		if (same_process(c->keys[i].wait, c->keys[before].wait))
			return true;
	return false;
}

static bool has_start(const struct correlation *c, const struct subscription *of, uint32_t before)
{
	for (uint32_t i = 0; i < before; i++)
		if (same_process(c->starts[i], of))
			return true;
	return false;
}

/* Every process by itself: its waits, or a new instance of it. */
static void note_all(struct correlate_targets *t, struct str tenant, const struct correlation *c,
		     const struct store_resolve *resolve)
{
	bool *starts = arena_zalloc(t->arena, c->start_count + 1);

	for (uint32_t i = 0; i < c->start_count; i++)
		starts[i] = !note_process(t, tenant, c, resolve, c->starts[i]);
	for (uint32_t i = 0; i < c->key_count; i++)
		if (!is_seen(c, i) && !has_start(c, c->keys[i].wait, c->start_count))
			note_process(t, tenant, c, resolve, c->keys[i].wait);
	t->count = t->wait_count;
	for (uint32_t i = 0; i < c->start_count; i++)
		if (starts[i]) {
			t->start = c->starts[i];
			t->notes[t->count++] = start_note(c, c->starts[i]);
		}
}

struct correlate_targets correlate_targets(struct arena *arena, struct str tenant, const struct correlation *c,
					   const struct store_resolve *resolve, bool broadcast)
{
	struct correlate_targets t = {.verdict = CORRELATE_NOBODY, .arena = arena};
	uint32_t most = (resolve ? resolve->wait_count : 0) + c->start_count;

	t.notes = arena_alloc(arena, (most + 1) * sizeof(*t.notes));
	if (broadcast) {
		note_all(&t, tenant, c, resolve);
	} else if (note_process(&t, tenant, c, resolve, NULL)) {
		t.count = t.wait_count;
	} else if (c->start) {
		t.start = c->start;
		t.count = 1;
	}
	if (t.count > 1 || t.verdict == CORRELATE_SEVERAL)
		t.verdict = CORRELATE_SEVERAL;
	else if (t.wait_count)
		t.verdict = CORRELATE_WAIT;
	else if (t.count)
		t.verdict = CORRELATE_START;
	return t;
}
