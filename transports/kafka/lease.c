/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of the Kafka consumer: a partition in one assignment, with its offset tracker, from assign to unassign.
 *
 * What must always hold (G1, G2): an offset is committed only if everything delivered below it in this assignment is
 * finished, and never once the partition is, or may be, another's. A message that settles after its lease was sealed stores
 * nothing; the next owner reads it again, and the inbox knows its effect (G5). If the partition comes back to this replica
 * it is another lease, so nothing of the old one can move its offsets.
 *
 * A rebalance takes partitions away in this order, without ever blocking the loop:
 *	1 CLOSING: records of it are dropped, the sink gives back what is idle;
 *	2 what is in work ends, at most a third of the session timeout (it then goes to waste, nothing more);
 *	3 SEALED: the watermark is committed, asynchronously;
 *	4 on the answer, or after that time once more, unassign: the library goes on with the rebalance.
 * A crash after any of these leaves the broker with an older watermark: records come again.
 *
 * Commits in between are a convenience that keeps redelivery short. One that fails is not repeated by itself: the watermark
 * is sent again with the next, and a rebalance that caused the failure has a commit of its own.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/time.h"
#include "transports/kafka/consumer.h"

#define COMMIT_INTERVAL_US (1 * US_PER_S)
#define COMMIT_IDLE_US (100 * US_PER_MS)
#define COMMIT_RECORDS 1000
/* Offsets that a restart may have to read again; past it the partition pauses until half of it is done. */
#define SPAN_MAX INT64_C(50000)

/* --- life --- */

static struct kafka_lease *lease_new(struct kafka_consumer *consumer, int32_t partition)
{
	struct kafka_lease *lease = mem_zalloc(sizeof(*lease));

	lease->partition = partition;
	lease->committing = lease->committed = -1;
	lease->assigned = true;
	offsets_init(&lease->offsets);
	list_push(&consumer->leases, &lease->link);
	return lease;
}

static void lease_free_if_unused(struct kafka_lease *lease)
{
	if (lease->assigned || lease->unsettled)
		return;
	offsets_done(&lease->offsets);
	free(lease);
}

/* The partition is no longer ours; the lease lives on for its messages. */
static void lease_let_go(struct kafka_lease *lease)
{
	lease->state = LEASE_SEALED;
	lease->assigned = false;
	list_remove(&lease->link);
	lease_free_if_unused(lease);
}

/* The one that is assigned now, or NULL. */
struct kafka_lease *lease_find(struct kafka_consumer *consumer, int32_t partition)
{
	list_for_each(&consumer->leases, pos, tmp) {
		struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (lease->partition == partition)
			return lease;
	}
	return NULL;
}

uint32_t leases_open(const struct kafka_consumer *consumer)
{
	uint32_t count = 0;

	list_for_each(&consumer->leases, pos, tmp)
		count += list_entry(pos, struct kafka_lease, link)->state == LEASE_OPEN;
	return count;
}

static uint32_t leases_assigned(const struct kafka_consumer *consumer)
{
	uint32_t count = 0;

	list_for_each(&consumer->leases, pos, tmp)
		count++;
	return count;
}

/* --- pauses --- */

static void leases_tell(struct kafka_consumer *consumer, bool pause, const struct kafka_partition *partitions,
			size_t count)
{
	if (count && pause)
		consumer->client->pause(consumer->handle, partitions, count);
	else if (count)
		consumer->client->resume(consumer->handle, partitions, count);
}

/* Resuming one that is not paused moves its position in older libraries, so each is told changes only. */
void leases_pause(struct kafka_consumer *consumer)
{
	struct kafka_partition *partitions;
	uint32_t assigned = leases_assigned(consumer);

	if (!consumer->handle || !assigned)
		return;
	partitions = mem_array(NULL, assigned, sizeof(*partitions));
	for (int pause = 0; pause <= 1; pause++) {
		size_t count = 0;

		list_for_each(&consumer->leases, pos, tmp) {
			struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);
			bool want = consumer->paused_all || lease->over_span || consumer->phase != PHASE_RUNNING;

			if (lease->state != LEASE_OPEN || want == lease->paused || want != (pause == 1))
				continue;
			lease->paused = want;
			partitions[count++] = (struct kafka_partition){consumer->topic, lease->partition, -1};
		}
		leases_tell(consumer, pause == 1, partitions, count);
	}
	free(partitions);
}

static void lease_check_span(struct kafka_consumer *consumer, struct kafka_lease *lease)
{
	int64_t span = offsets_span(&lease->offsets);
	struct log_about about = consumer_about(consumer);

	if (lease->state != LEASE_OPEN || (lease->over_span ? span > SPAN_MAX / 2 : span <= SPAN_MAX))
		return;
	lease->over_span = !lease->over_span;
	if (lease->over_span)
		log_warning(&about,
			    "partition %" PRId32 " pauses: offset %" PRId64 " has been unfinished for %" PRId64 " offsets",
			    lease->partition, offsets_watermark(&lease->offsets), span);
	leases_pause(consumer);
}

/* --- records --- */

/*
 * The partition went back below its watermark: the topic was made anew, or the library begins again. Everything from here on
 * comes again and counts in a lease of its own; skipping what "was there before" could lose it for good.
 */
static struct kafka_lease *lease_restart(struct kafka_consumer *consumer, struct kafka_lease *old, int64_t offset)
{
	struct log_about about = consumer_about(consumer);
	struct kafka_lease *lease = lease_new(consumer, old->partition);

	log_warning(&about, "partition %" PRId32 " went back from offset %" PRId64 " to %" PRId64, old->partition,
		    old->offsets.next, offset);
	lease->paused = old->paused;
	old->state = LEASE_SEALED;
	list_remove(&old->link);
	consumer_stash_drop(consumer, old);
	consumer_revoke_from_sink(consumer, old);
	old->assigned = false;
	lease_free_if_unused(old);
	leases_pause(consumer);
	return lease;
}

struct kafka_lease *lease_add(struct kafka_consumer *consumer, struct kafka_lease *lease, int64_t offset, bool *tracked)
{
	enum offsets_added added = offsets_add(&lease->offsets, offset);

	if (added == OFFSETS_BELOW) {
		lease = lease_restart(consumer, lease, offset);
		added = offsets_add(&lease->offsets, offset);
		assert(added == OFFSETS_NEW);
	}
	/* A repetition is delivered, in case it is another record under an old offset, but the first one is what counts. */
	*tracked = added == OFFSETS_NEW;
	if (lease->committing < 0)
		lease->committing = lease->committed = offset;
	lease->unsettled++;
	lease_check_span(consumer, lease);
	return lease;
}

void lease_settled(struct kafka_consumer *consumer, struct kafka_lease *lease, int64_t offset, bool is_done)
{
	assert(lease->unsettled > 0);
	lease->unsettled--;
	if (is_done && lease->state != LEASE_SEALED) {
		offsets_finish(&lease->offsets, offset);
		consumer->done_since_commit++;
		lease_check_span(consumer, lease);
		if (consumer->done_since_commit >= COMMIT_RECORDS)
			lease_commit(consumer);
		else if (!loop_timer_is_started(&consumer->commit))
			loop_timer_start(&consumer->commit, COMMIT_INTERVAL_US);
	}
	lease_free_if_unused(lease);
	if (consumer->revoking && !consumer->nested)
		lease_revoke_check(consumer);
}

/* --- commits --- */

/* Commits the watermarks of the leases of this state that moved. */
static void leases_commit(struct kafka_consumer *consumer, enum lease_state state)
{
	struct kafka_partition *partitions;
	size_t count = 0;
	uint32_t assigned = leases_assigned(consumer);

	consumer->done_since_commit = 0;
	loop_timer_stop(&consumer->commit);
	if (!consumer->handle || !assigned)
		return;
	partitions = mem_array(NULL, assigned, sizeof(*partitions));
	list_for_each(&consumer->leases, pos, tmp) {
		struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);
		int64_t watermark = offsets_watermark(&lease->offsets);

		if (lease->state != state || watermark <= lease->committing)
			continue;
		partitions[count++] = (struct kafka_partition){consumer->topic, lease->partition, watermark};
	}
	if (count && fault(FAULT_offset_commit_before)) {
		if (state == LEASE_OPEN)
			loop_timer_start(&consumer->commit, COMMIT_INTERVAL_US);
	} else if (count) {
		for (size_t i = 0; i < count; i++)
			lease_find(consumer, partitions[i].partition)->committing = partitions[i].offset;
		consumer->client->commit(consumer->handle, partitions, count);
	}
	free(partitions);
}

void lease_commit(struct kafka_consumer *consumer)
{
	leases_commit(consumer, LEASE_OPEN);
}

void lease_commit_timer(struct loop_timer *timer)
{
	lease_commit(container_of(timer, struct kafka_consumer, commit));
}

void lease_idle(struct kafka_consumer *consumer)
{
	if (consumer->unsettled == 0 && loop_timer_is_started(&consumer->commit) &&
	    consumer->commit.due_us - loop_now_us(consumer->base.loop) > COMMIT_IDLE_US)
		loop_timer_start(&consumer->commit, COMMIT_IDLE_US);
}

bool lease_is_waiting(const struct kafka_consumer *consumer)
{
	list_for_each(&consumer->leases, pos, tmp) {
		const struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (lease->committing > lease->committed)
			return true;
	}
	return false;
}

bool lease_commit_last(struct kafka_consumer *consumer)
{
	leases_commit(consumer, LEASE_OPEN);
	leases_commit(consumer, LEASE_CLOSING);
	list_for_each(&consumer->leases, pos, tmp)
		list_entry(pos, struct kafka_lease, link)->state = LEASE_SEALED;
	return lease_is_waiting(consumer);
}

static void lease_answered(struct kafka_consumer *consumer, const struct kafka_partition *partition, bool failed)
{
	struct kafka_lease *lease = lease_find(consumer, partition->partition);

	/* An answer to an earlier commit, or of an earlier lease, says nothing about the one that is under way. */
	if (!lease || lease->committing != partition->offset)
		return;
	if (!failed) {
		lease->committed = lease->committing;
		return;
	}
	lease->committing = lease->committed;
	if (lease->state == LEASE_OPEN && !loop_timer_is_started(&consumer->commit))
		loop_timer_start(&consumer->commit, COMMIT_INTERVAL_US);
}

void lease_on_committed(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	bool failed = event->failed;
	struct log_about about = consumer_about(consumer);

	if (fault(FAULT_offset_commit_after))
		failed = true;
	/* Once, until it works again: a coordinator that moves fails a few in a row. */
	if (failed && !consumer->commit_failing)
		log_info(&about, "the offsets of group '%s' were not committed and will be sent again: %s",
			 consumer->group, event->text);
	consumer->commit_failing = failed;
	for (size_t i = 0; i < event->partition_count; i++)
		lease_answered(consumer, &event->partitions[i], failed);
	if (consumer->revoking)
		lease_revoke_check(consumer);
}

/* --- rebalances --- */

static void report_assignment(struct kafka_consumer *consumer)
{
	uint32_t open = leases_open(consumer);

	if (consumer->phase != PHASE_RUNNING)
		return;
	/* A member of a group on a topic that does not exist is given nothing. */
	if (!open && consumer->state == CONSUMER_MISSING)
		return;
	if (open)
		consumer_set_state(consumer, CONSUMER_CONSUMING, "%u partitions of '%s'", open, consumer->topic);
	else
		consumer_set_state(consumer, CONSUMER_CONSUMING, "no partition of '%s': others have them all",
				   consumer->topic);
}

void lease_on_assign(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	struct log_about about = consumer_about(consumer);

	for (size_t i = 0; i < event->partition_count; i++) {
		struct kafka_lease *old = lease_find(consumer, event->partitions[i].partition);

		if (old) { /* given twice: the second one counts */
			consumer_stash_drop(consumer, old);
			consumer_revoke_from_sink(consumer, old);
			lease_let_go(old);
		}
		lease_new(consumer, event->partitions[i].partition);
	}
	consumer->client->assign(consumer->handle, event->partitions, event->partition_count);
	consumer->joined = true;
	consumer->rebuild_delay_ms = KAFKA_REBUILD_MIN_MS;
	leases_pause(consumer);
	if (event->partition_count)
		log_info(&about, "%zu partitions of '%s' assigned, %u now", event->partition_count, consumer->topic,
			 leases_open(consumer));
	report_assignment(consumer);
}

/* The partitions of the rebalance under way go. */
static void revoke_finish(struct kafka_consumer *consumer)
{
	struct kafka_partition *gone = mem_array(NULL, leases_assigned(consumer) + 1, sizeof(*gone));
	size_t count = 0, resumed = 0;

	loop_timer_stop(&consumer->revoke);
	consumer->revoking = false;
	/* A pause would outlive the assignment and meet the partition when it comes back. */
	list_for_each(&consumer->leases, pos, tmp) {
		struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (lease->revoking && lease->paused)
			gone[resumed++] = (struct kafka_partition){consumer->topic, lease->partition, -1};
	}
	leases_tell(consumer, false, gone, resumed);
	list_for_each(&consumer->leases, pos, tmp) {
		struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (!lease->revoking)
			continue;
		gone[count++] = (struct kafka_partition){consumer->topic, lease->partition, -1};
		lease_let_go(lease);
	}
	consumer->client->unassign(consumer->handle, gone, count);
	free(gone);
	report_assignment(consumer);
}

static bool revoke_has_work(const struct kafka_consumer *consumer)
{
	list_for_each(&consumer->leases, pos, tmp) {
		const struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (lease->revoking && lease->unsettled)
			return true;
	}
	return false;
}

static bool revoke_is_waiting(const struct kafka_consumer *consumer)
{
	list_for_each(&consumer->leases, pos, tmp) {
		const struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (lease->revoking && lease->committing > lease->committed)
			return true;
	}
	return false;
}

static void revoke_seal(struct kafka_consumer *consumer)
{
	leases_commit(consumer, LEASE_CLOSING);
	consumer->revoke_sealed = true;
	list_for_each(&consumer->leases, pos, tmp) {
		struct kafka_lease *lease = list_entry(pos, struct kafka_lease, link);

		if (lease->revoking)
			lease->state = LEASE_SEALED;
		/* The timer was stopped for all; those that stay go on. */
		else if (lease->state == LEASE_OPEN && offsets_watermark(&lease->offsets) > lease->committing &&
			 !loop_timer_is_started(&consumer->commit))
			loop_timer_start(&consumer->commit, COMMIT_INTERVAL_US);
	}
	loop_timer_start(&consumer->revoke, consumer->revoke_wait_ms * US_PER_MS);
}

void lease_revoke_check(struct kafka_consumer *consumer)
{
	if (!consumer->revoke_sealed && revoke_has_work(consumer))
		return;
	if (!consumer->revoke_sealed)
		revoke_seal(consumer);
	if (!revoke_is_waiting(consumer))
		revoke_finish(consumer);
}

void lease_revoke_timeout(struct loop_timer *timer)
{
	struct kafka_consumer *consumer = container_of(timer, struct kafka_consumer, revoke);
	struct log_about about = consumer_about(consumer);

	if (consumer->revoke_sealed) {
		log_warning(&about, "the last commit of revoked partitions was not answered; they are given up all the same");
		revoke_finish(consumer);
		return;
	}
	log_warning(&about, "messages of revoked partitions are still in work; their next owner will read them again");
	revoke_seal(consumer);
	if (!revoke_is_waiting(consumer))
		revoke_finish(consumer);
}

void lease_on_revoke(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	struct log_about about = consumer_about(consumer);
	bool any = false;

	/* The library asks one thing at a time; should it not, what came first is over. */
	if (consumer->revoking)
		revoke_finish(consumer);
	consumer->revoking = true;
	consumer->revoke_sealed = false;
	consumer->nested++;
	for (size_t i = 0; i < event->partition_count; i++) {
		struct kafka_lease *lease = lease_find(consumer, event->partitions[i].partition);

		if (!lease)
			continue;
		any = true;
		lease->revoking = true;
		if (lease->state == LEASE_OPEN)
			lease->state = LEASE_CLOSING;
		consumer_stash_drop(consumer, lease);
		consumer_revoke_from_sink(consumer, lease);
	}
	consumer->nested--;
	if (!any) {
		consumer->revoking = false;
		consumer->client->unassign(consumer->handle, event->partitions, event->partition_count);
		return;
	}
	log_info(&about, "%zu partitions of '%s' revoked", event->partition_count, consumer->topic);
	loop_timer_start(&consumer->revoke, consumer->revoke_wait_ms * US_PER_MS);
	lease_revoke_check(consumer);
}

void lease_on_lost(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	struct log_about about = consumer_about(consumer);

	if (consumer->revoking)
		revoke_finish(consumer);
	log_warning(&about, "%zu partitions of '%s' were lost: the group went on without this member",
		    event->partition_count, consumer->topic);
	consumer->revoking = true;
	consumer->revoke_sealed = true;
	consumer->nested++;
	for (size_t i = 0; i < event->partition_count; i++) {
		struct kafka_lease *lease = lease_find(consumer, event->partitions[i].partition);

		if (!lease)
			continue;
		lease->revoking = true;
		lease->state = LEASE_SEALED;
		consumer_stash_drop(consumer, lease);
		consumer_revoke_from_sink(consumer, lease);
	}
	consumer->nested--;
	revoke_finish(consumer);
}

void leases_end(struct kafka_consumer *consumer)
{
	consumer->revoking = false;
	loop_timer_stop(&consumer->revoke);
	loop_timer_stop(&consumer->commit);
	list_for_each(&consumer->leases, pos, tmp)
		list_entry(pos, struct kafka_lease, link)->state = LEASE_SEALED;
	while (!list_is_empty(&consumer->leases)) {
		struct kafka_lease *lease = list_first(&consumer->leases, struct kafka_lease, link);

		consumer_stash_drop(consumer, lease);
		consumer_revoke_from_sink(consumer, lease);
		lease_let_go(lease);
	}
}
