/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of the correlation tables and of outbox rows: digests, so that values of any length make short index entries.
 * Each carries the tenant and the name of its table, so that no two tables or tenants share a key.
 */
#include "store/store.h"

struct id store_inbox_key(struct str tenant, struct str channel, struct str event_id)
{
	return id_digest_of(STR("inbox"), tenant, channel, event_id);
}

struct id store_wait_key(struct str tenant, struct str channel, struct str name, struct str value)
{
	return id_digest_of(STR("wait"), tenant, channel, name, value);
}

struct id store_alias_key(struct str tenant, struct str name, struct str value)
{
	return id_digest_of(STR("alias"), tenant, name, value);
}

static void be64(uint8_t out[static 8], int64_t value)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
}

struct id outbox_row_id(struct id instance, int64_t version, int64_t ordinal)
{
	uint8_t numbers[16];

	be64(numbers, version);
	be64(numbers + 8, ordinal);
	return id_digest_of(STR("outbox"), id_str(&instance), str_make(numbers, sizeof(numbers)));
}
