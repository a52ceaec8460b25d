/* SPDX-License-Identifier: Apache-2.0 */
/* Order by key: who waits behind whom, and how much waits behind what is held. */
#include "flow/chain.h"

#include "base/alloc.h"
#include "flow/delivery.h"

static struct str chain_name_str(const struct chain_name *name)
{
	return str_make(name->key, name->len);
}

static void chain_add_name(struct intake *intake, struct chain *chain, struct str key)
{
	struct chain_name *name;

	if (map_put(&intake->chains, key, chain) == chain)
		return;
	name = mem_alloc(sizeof(*name) + key.len);
	name->len = key.len;
	memcpy(name->key, key.ptr, key.len);
	list_push(&chain->names, &name->link);
}

/* --- what is parked --- */

/* Out of the intake's sums, before something of the chain changes; chain_count puts it back in. */
static void chain_uncount(struct intake *intake, struct chain *chain)
{
	if (!list_is_linked(&chain->parked_link))
		return;
	list_remove(&chain->parked_link);
	intake->parked_count -= chain->live;
	intake->parked_bytes -= chain->live_bytes;
}

static void chain_count(struct intake *intake, struct chain *chain)
{
	if (!chain->held || !chain->live)
		return;
	list_push(&intake->parked, &chain->parked_link);
	intake->parked_count += chain->live;
	intake->parked_bytes += chain->live_bytes;
}

static void chain_add_live(struct chain *chain, const struct delivery *dlv, bool add)
{
	chain->live += add ? 1 : (uint32_t)-1;
	chain->live_bytes += add ? dlv->message->bytes : -dlv->message->bytes;
}

void chain_held(struct delivery *dlv, bool held)
{
	struct chain *chain = dlv->chain;

	if (!chain)
		return;
	chain_uncount(dlv->intake, chain);
	chain->held += held ? 1 : (uint32_t)-1;
	chain_count(dlv->intake, chain);
}

void chain_live(struct delivery *dlv, bool live)
{
	struct chain *chain = dlv->chain;

	assert(dlv->is_live != live);
	chain_uncount(dlv->intake, chain);
	chain_add_live(chain, dlv, live);
	chain_count(dlv->intake, chain);
	dlv->is_live = live;
}

/* --- joining and leaving --- */

static struct chain *chain_new(void)
{
	struct chain *chain = mem_zalloc(sizeof(*chain));

	list_init(&chain->deliveries);
	list_init(&chain->names);
	return chain;
}

/* Everything of `from` goes behind `chain`. Its head, if it is in work, goes on: only what comes later waits for both. */
static void chain_merge(struct intake *intake, struct chain *chain, struct chain *from)
{
	chain_uncount(intake, chain);
	chain_uncount(intake, from);
	chain->held += from->held;
	chain->live += from->live;
	chain->live_bytes += from->live_bytes;
	chain_count(intake, chain);
	list_for_each(&from->deliveries, pos, tmp)
		list_entry(pos, struct delivery, chain_link)->chain = chain;
	list_for_each(&from->names, pos, tmp)
		map_put(&intake->chains, chain_name_str(list_entry(pos, struct chain_name, link)), chain);
	list_splice(&chain->deliveries, &from->deliveries);
	list_splice(&chain->names, &from->names);
	free(from);
}

void chain_join(struct delivery *dlv, const struct str *keys, uint32_t count)
{
	struct intake *intake = dlv->intake;
	struct chain *chain = NULL;

	for (uint32_t i = 0; i < count; i++) {
		struct chain *named = map_get(&intake->chains, keys[i]);

		if (chain && named && named != chain)
			chain_merge(intake, chain, named);
		else if (named)
			chain = named;
	}
	if (!chain)
		chain = chain_new();
	for (uint32_t i = 0; i < count; i++)
		chain_add_name(intake, chain, keys[i]);
	dlv->chain = chain;
	list_push(&chain->deliveries, &dlv->chain_link);
	if (!dlv->is_place)
		chain_live(dlv, true);
}

static void chain_free(struct intake *intake, struct chain *chain)
{
	assert(!chain->held && !chain->live);
	list_for_each(&chain->names, pos, tmp) {
		struct chain_name *name = list_entry(pos, struct chain_name, link);

		map_remove(&intake->chains, chain_name_str(name));
		free(name);
	}
	free(chain);
}

bool chain_is_head(const struct delivery *dlv)
{
	return !dlv->chain || dlv->chain->deliveries.next == &dlv->chain_link;
}

struct delivery *chain_leave(struct delivery *dlv)
{
	struct chain *chain = dlv->chain;
	bool was_head = chain_is_head(dlv);

	if (!chain)
		return NULL;
	if (dlv->is_live)
		chain_live(dlv, false);
	list_remove(&dlv->chain_link);
	dlv->chain = NULL;
	if (list_is_empty(&chain->deliveries)) {
		chain_free(dlv->intake, chain);
		return NULL;
	}
	return was_head ? list_first(&chain->deliveries, struct delivery, chain_link) : NULL;
}

void chain_put_before(struct delivery *dlv, struct delivery *place)
{
	place->chain = dlv->chain;
	list_insert_before(&dlv->chain_link, &place->chain_link);
}

void chain_put_behind(struct delivery *place, struct delivery *dlv)
{
	if (place->chain != dlv->chain)
		chain_merge(place->intake, place->chain, dlv->chain);
}
