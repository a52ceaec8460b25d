/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage publish: the head of a group goes to the publisher of its connection.
 *
 * A row is sent as the deployment that minted it declares its channel, also while that one is draining; a reply carries its
 * own destination. A row whose destination cannot even be named (its deployment is not loaded) fails like one that the broker
 * does not take, and is tried again.
 *
 * A replica that was slow must not send under a stamp that another may have cleared by now: past half of the claim timeout
 * since the stamp, or its last renewal, the row and everything behind it in its group is given back.
 */
#include <stdio.h>

#include "base/fault.h"
#include "base/time.h"
#include "outbox/internal.h"

static void outbox_published(struct task *done);

static const struct channel *outbox_channel(const struct outbox *outbox, const struct outbox_row *row)
{
	const struct view_member *member =
		outbox->view ? view_deployment(outbox->view, row->deployment) : NULL;

	return member ? deployment_channel(member->deployment, row->channel) : NULL;
}

/* What stays the same over all attempts is made once: a row may be tried for days. */
static void outbox_fill_publication(struct outbox_entry *entry)
{
	struct publication *pub = &entry->publication;
	const struct outbox_row *row = &entry->row;
	struct arena *arena = &entry->parcel->arena;
	struct error err = ERROR_INIT;
	char id[ID_TEXT_SIZE];

	*pub = (struct publication){
		.tenant = row->tenant,
		.key = row->record_key,
		.body = row->body,
		.content_type = row->content_type,
		.message_id = str_of(arena_strdup(arena, id_format(row->id, id))),
		.correlation = value_nil(),
	};
	/* Both were packed by us; if the row is damaged all the same, it goes out without them rather than never. */
	if (row->headers.len && headers_unpack(arena, row->headers, &pub->headers, &err) != RESULT_OK)
		pub->headers = (struct header_list){0};
	if (row->correlation.len && value_unpack(arena, row->correlation, false, &VALUE_LIMITS_OWN, &pub->correlation,
						 &err) != RESULT_OK)
		pub->correlation = value_nil();
}

static void outbox_publish(struct outbox_entry *entry)
{
	struct outbox *outbox = entry->outbox;
	const struct channel *channel = outbox_channel(outbox, &entry->row);
	struct str connection = entry->row.connection;
	struct str destination = entry->row.destination;
	struct publisher *publisher;
	char text[160];

	if (channel && !connection.len)
		connection = channel->connection;
	if (channel && !destination.len)
		destination = channel->bind;
	publisher = connection.len ? outbox->route(outbox->user, connection) : NULL;
	if (!publisher || !destination.len) {
		snprintf(text, sizeof(text), "no connection '%.*s' for channel '%.*s' of deployment %.*s",
			 STR_ARG(connection), STR_ARG(entry->row.channel), STR_ARG(entry->row.deployment));
		outbox_failed(entry, CODE_OUTBOUND_UNROUTABLE, text);
		return;
	}
	if (!entry->publication.message_id.ptr)
		outbox_fill_publication(entry);
	/* The connection may be another than at the last attempt, and so the destination. */
	entry->publication.destination = arena_str(&entry->parcel->arena, destination);
	entry->publication.reply_to = outbox->loop;
	entry->publication.done.run = outbox_published;
	entry->publication.text[0] = '\0';
	entry->publisher = publisher;
	entry->state = ENTRY_SENT;
	entry->sent_us = loop_now_us(outbox->loop);
	stat_add(outbox->stats.published, 1);
	fault(FAULT_publish_before);
	publisher->ops->publish(publisher, &entry->publication);
}

void outbox_group_next(struct outbox_group *group, struct outbox *outbox)
{
	for (;;) {
		struct outbox_entry *head = list_first(&group->entries, struct outbox_entry, group_link);

		if (!head) {
			outbox_group_drop_if_empty(outbox, group);
			return;
		}
		if (head->state != ENTRY_QUEUED || outbox->stopping)
			return;
		if (head->lost || !outbox_stamp_is_good(head)) {
			outbox_group_give_back(outbox, group);
			return;
		}
		outbox_publish(head); /* if that fails at once and for good, the next is the head */
	}
}

static void outbox_published(struct task *done)
{
	struct outbox_entry *entry = container_of(done, struct outbox_entry, publication.done);
	struct outbox_group *group = entry->group;
	struct outbox *outbox = entry->outbox;

	fault(FAULT_publish_after);
	entry->publisher = NULL;
	if (entry->publication.outcome == PUBLISH_CONFIRMED) {
		stat_add(outbox->stats.confirmed, 1);
		stat_add(outbox->stats.publish_us_total,
			 (uint64_t)(loop_now_us(outbox->loop) - entry->sent_us));
		outbox_confirmed(entry);
		return;
	}
	if (entry->withdrawn) {
		outbox_entry_free(entry);
		return;
	}
	if (entry->lost || outbox->stopping) {
		entry->state = ENTRY_QUEUED;
		outbox_group_give_back(outbox, group);
		return;
	}
	outbox_failed(entry,
		      entry->publication.outcome == PUBLISH_UNROUTABLE ? CODE_OUTBOUND_UNROUTABLE
								       : CODE_OUTBOUND_PUBLISH_FAILED,
		      entry->publication.text);
	outbox_group_next(group, outbox);
}

/* A purge takes everything back from its publisher, so it is asked once however many of its rows are stale. */
void outbox_purge(struct outbox *outbox, bool only_stale)
{
	struct publisher *last = NULL;

	list_for_each(&outbox->entries, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, all_link);

		if (entry->state != ENTRY_SENT || entry->lost || (only_stale && outbox_stamp_is_good(entry)))
			continue;
		entry->lost = true;
		if (entry->publisher != last)
			entry->publisher->ops->purge(entry->publisher);
		last = entry->publisher;
	}
}
