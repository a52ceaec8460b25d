/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of the correlation tables and of outbox rows, and the tenants of a segment. Keys are digests, so that values of any length make short index entries.
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

struct str store_call_key(struct arena *arena, struct str value)
{
	char hex[65];

	if (value.len <= STORE_TEXT_MAX)
		return value;
	sha256_hex(value, hex);
	return str_of(arena_printf(arena, "sha256:%s", hex));
}

const char *kept_kind_name(enum kept_kind kind)
{
	static const char *const names[] = {
		[KEPT_OVERFLOW] = "overflow", [KEPT_EARLY] = "early", [KEPT_TARGET] = "target", [KEPT_REPLAY] = "replay"};

	return names[kind];
}

/* How far back a tenant is looked for. Neighbours mostly have the same one; that it may stand in the list twice is harmless. */
#define TENANTS_BACK 64

struct str store_tenants(struct arena *arena, const struct str *tenants, uint32_t count)
{
	struct str *kept = arena_alloc(arena, (count + 1) * sizeof(*kept));
	uint32_t kept_count = 0;
	size_t bytes = 1;
	char *text, *at;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t from = kept_count > TENANTS_BACK ? kept_count - TENANTS_BACK : 0, k = kept_count;

		while (k > from && !str_equal(kept[k - 1], tenants[i]))
			k--;
		if (k > from)
			continue;
		kept[kept_count++] = tenants[i];
		bytes += tenants[i].len + 1;
	}
	at = text = arena_alloc(arena, bytes + 1);
	*at++ = ',';
	for (uint32_t i = 0; i < kept_count; i++) {
		if (kept[i].len)
			memcpy(at, kept[i].ptr, kept[i].len);
		at += kept[i].len;
		*at++ = ',';
	}
	*at = '\0';
	return str_make(text, bytes);
}
