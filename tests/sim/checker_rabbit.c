/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is watched of RabbitMQ: what goes out to its queues, what comes in by deliveries.
 */
#include "tests/sim/checker_private.h"

#include "base/alloc.h"

static bool queue_is_input(const char *queue)
{
	return strcmp(queue, "deals") == 0 || strcmp(queue, "instalments") == 0;
}

/* --- out --- */

static struct str outbox_key(const struct rabbit_message *message)
{
	const struct header *header = header_find(&message->properties.headers,
						  STR("sutra-outbox-key"));

	return header ? value_as_str(&header->value) : STR_NONE;
}

/* The second queue of an exchange gets what the first one gets; that is looked at in the end. */
void checker_published(void *user, const struct rabbit_message *message)
{
	struct checker *checker = user;
	struct str key = outbox_key(message);

	if (queue_is_input(message->queue) || strcmp(message->queue, "copies") == 0)
		return;
	if (!str_equal(key, message->properties.message_id))
		sim_fail(checker->sim, "G6: a message on %s has another message-id than its key",
			 message->queue);
	checker_sent(checker, message->queue, key);
}

void checker_lost(void *user, const struct rabbit_message *message)
{
	struct checker *checker = user;
	struct seen_send *send;
	struct id key;

	if (queue_is_input(message->queue) || strcmp(message->queue, "copies") == 0 ||
	    !id_parse(outbox_key(message), &key))
		return;
	send = map_get(&checker->sends, id_str(&key));
	if (send)
		send->copies--;
}

/* --- in --- */

void checker_delivered(void *user, const struct rabbit_message *message,
		       const struct process *process, uint64_t lease, uint64_t tag)
{
	struct checker *checker = user;
	struct load_event *event = checker_event_find(checker, message->properties.message_id);

	if (!event) {
		sim_fail(checker->sim, "a delivery of nothing that was sent");
		return;
	}
	event->receipts = mem_array(event->receipts, event->receipt_count + 1,
				    sizeof(*event->receipts));
	event->receipts[event->receipt_count++] = (struct load_receipt){process, lease, tag};
}

void checker_acked(void *user, const struct rabbit_message *message)
{
	struct checker *checker = user;
	const struct load_event *event = checker_event_find(checker,
							    message->properties.message_id);

	if (event && !event_is_done(event) && !event->kept)
		sim_fail(checker->sim,
			 "G1: message %llu of %s is acknowledged, but its event %s has had no "
			 "effect",
			 (unsigned long long)message->number, message->queue, event->id);
}

/* The first event of the same order and queue that was received before on that lease and is not done; NULL: none. */
static const struct load_event *passed_over(const struct checker *checker,
					    const struct load_event *event,
					    const struct load_receipt *receipt)
{
	for (int i = 0; i < checker->load->event_count; i++) {
		const struct load_event *other = &checker->load->events[i];

		if (other == event || other->order != event->order || event_is_done(other) ||
		    strcmp(other->topic, event->topic) != 0)
			continue;
		for (size_t k = 0; k < other->receipt_count; k++)
			if (other->receipts[k].lease == receipt->lease &&
			    other->receipts[k].tag < receipt->tag)
				return other;
	}
	return NULL;
}

/*
 * A replica may have received it on several channels, one after the other, and says nowhere for which of these it has taken
 * effect: in one of them everything before it must be done. What was kept may have been received by another replica.
 */
void checker_delivery_order(struct checker *checker, const struct load_event *event,
			    const struct process *process)
{
	const struct load_event *other = NULL;

	if (event->order < 0)
		return;
	for (size_t i = 0; i < event->receipt_count; i++) {
		if (event->receipts[i].process != process && !event->kept)
			continue;
		other = passed_over(checker, event, &event->receipts[i]);
		if (!other)
			return;
	}
	if (other)
		sim_fail(checker->sim,
			 "G8: event %s took effect before %s, which was delivered before it on its "
			 "channel",
			 event->id, other->id);
}
