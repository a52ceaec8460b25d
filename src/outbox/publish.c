/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage publish: the head of a group goes to the publisher of its connection.
 *
 * A row is sent as the deployment that minted it declares its channel, also while that one is draining; a reply carries its
 * own destination. A row whose destination cannot even be named (its deployment is not loaded) fails like one that the broker
 * does not take, and is tried again.
 *
 * A replica that was slow must not send under a stamp that another may have cleared by now: past half of the claim timeout
 * since the stamp, or its last renewal, the row is forgotten here and is somebody's scan's.
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

static void outbox_fill_publication(struct outbox_entry *entry, struct str destination)
{
	struct publication *pub = &entry->publication;
	const struct outbox_row *row = &entry->row;
	struct arena *arena = &entry->parcel->arena;
	struct error err = ERROR_INIT;
	char id[ID_TEXT_SIZE];

	*pub = (struct publication){
		.destination = destination,
		.tenant = row->tenant,
		.key = row->record_key,
		.body = row->body,
		.content_type = row->content_type,
		.message_id = str_of(arena_strdup(arena, id_format(row->id, id))),
		.correlation = value_nil(),
		.reply_to = entry->outbox->loop,
		.done.run = outbox_published,
	};
	/* Both were packed by us; if the row is damaged all the same, it goes out without them rather than never. */
	if (row->headers.len && headers_unpack(arena, row->headers, &pub->headers, &err) != RESULT_OK)
		pub->headers = (struct header_list){0};
	if (row->correlation.len && value_unpack(arena, row->correlation, false, &VALUE_LIMITS_OWN, &pub->correlation,
						 &err) != RESULT_OK)
		pub->correlation = value_nil();
}

void outbox_publish(struct outbox_entry *entry)
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
	/* The text of the key and the headers are made anew for each attempt; an arena does not mind a few. */
	outbox_fill_publication(entry, destination);
	entry->state = ENTRY_SENT;
	entry->sent_us = loop_now_us(outbox->loop);
	stat_add(outbox->stats.published, 1);
	fault(FAULT_publish_before);
	publisher->ops->publish(publisher, &entry->publication);
}

/* The last thing done with a group: it may be gone afterwards. */
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
		if (!head->lost && outbox_stamp_is_good(head)) {
			outbox_publish(head);
			return;
		}
		list_remove(&head->group_link);
		head->group = NULL;
		outbox_entry_free(head);
	}
}

static void outbox_published(struct task *done)
{
	struct outbox_entry *entry = container_of(done, struct outbox_entry, publication.done);
	struct outbox *outbox = entry->outbox;

	fault(FAULT_publish_after);
	if (entry->publication.outcome == PUBLISH_CONFIRMED) {
		stat_add(outbox->stats.confirmed, 1);
		stat_add(outbox->stats.publish_us_total,
			 (uint64_t)(loop_now_us(outbox->loop) - entry->sent_us));
		outbox_confirmed(entry);
		return;
	}
	if (entry->lost || outbox->stopping) {
		entry->state = ENTRY_QUEUED;
		if (entry->lost)
			outbox_entry_free(entry);
		else
			outbox_release_all(outbox);
		return;
	}
	outbox_failed(entry,
		      entry->publication.outcome == PUBLISH_UNROUTABLE ? CODE_OUTBOUND_UNROUTABLE
								       : CODE_OUTBOUND_PUBLISH_FAILED,
		      entry->publication.text);
}
