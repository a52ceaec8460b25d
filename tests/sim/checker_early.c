/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early messages: one that a free instance waits for goes there at once, whoever keeps it; a replica that died between its
 * commit and its look is made up for within some seconds, and one that kept it and died within the time that its lease runs on.
 *
 * Seen at every commit. A time without commits (the database is away, nobody is there) is nobody's fault and begins the
 * count anew.
 */
#include "tests/sim/checker_private.h"

#include "base/time.h"

/* Leases of keepers end 30 s after their last beat, paused replicas come back sooner. */
#define PATIENCE_US (50 * US_PER_S)
#define GAP_US	    (3 * US_PER_S)

static bool is_free(struct tx *tx, struct field instance)
{
	const struct row *row = table_find(tx, TABLE_INSTANCE, &instance, 1);

	return row && row->fields[INSTANCE_claim_owner].is_null;
}

static bool is_waited_for(struct tx *tx, struct field key)
{
	struct row *wait = table_from(tx, TABLE_WAIT, &key, 1);

	for (; wait && table_matches(tx, TABLE_WAIT, wait, &key, 1); wait = table_next(wait))
		if (is_free(tx, wait->fields[WAIT_instance]))
			return true;
	return false;
}

/* Nothing of its order key comes before it. */
static bool is_first(struct tx *tx, struct field message)
{
	const struct row *kept = table_find(tx, TABLE_KEPT, &message, 1);

	for (struct row *row = table_first(tx, TABLE_KEPT); kept && row; row = table_next(row))
		if (id_equal(row->fields[KEPT_order_key].id, kept->fields[KEPT_order_key].id) &&
		    row->fields[KEPT_seq].i < kept->fields[KEPT_seq].i)
			return false;
	return kept != NULL;
}

static void seen(struct checker *checker, struct id message, int64_t now_us)
{
	struct seen_pair *pair = NULL;
	char id[ID_TEXT_SIZE];

	for (uint32_t i = 0; i < checker->pair_count && !pair; i++)
		if (id_equal(checker->pairs[i].message, message))
			pair = &checker->pairs[i];
	if (!pair && checker->pair_count == SEEN_PAIRS_MAX)
		return;
	if (!pair) {
		pair = &checker->pairs[checker->pair_count++];
		*pair = (struct seen_pair){message, now_us, now_us};
		checker->early_met++;
	}
	if (now_us - pair->seen_us > GAP_US)
		pair->since_us = now_us;
	pair->seen_us = now_us;
	if (now_us - pair->since_us > PATIENCE_US)
		sim_fail(checker->sim, "G11: early message %s is waited for since %lld s, and stays",
			 id_format(message, id), (long long)((now_us - pair->since_us) / US_PER_S));
}

void checker_early(struct checker *checker)
{
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};
	int64_t now_us = sim_now_us(checker->sim);
	uint32_t kept = 0;

	for (struct row *row = table_first(&tx, TABLE_EARLY); row; row = table_next(row))
		if (is_waited_for(&tx, row->fields[EARLY_key]) && is_first(&tx, row->fields[EARLY_message]))
			seen(checker, row->fields[EARLY_message].id, now_us);
	/* What is not seen any more is forgotten. */
	for (uint32_t i = 0; i < checker->pair_count; i++)
		if (checker->pairs[i].seen_us == now_us || now_us - checker->pairs[i].seen_us <= 0)
			checker->pairs[kept++] = checker->pairs[i];
	checker->pair_count = kept;
}
