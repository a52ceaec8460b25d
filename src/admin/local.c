/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what this replica itself has: lanes and channels; and the leases, of all replicas. */
#include "admin/internal.h"

#define load(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

static void list_open(struct buf *out, const char *plural)
{
	json_open(out, '{');
	json_name(out, plural);
	json_open(out, '[');
}

void admin_lanes(struct admin_request *request)
{
	const struct lane_set *set = request->admin->sources.lanes;
	struct buf *out = &request->body;

	list_open(out, "lanes");
	for (uint32_t i = 0; i < set->settings.lanes; i++) {
		const struct lane *lane = &set->lanes[i];

		json_open(out, '{');
		json_int(out, "lane", i);
		json_bool(out, "alive", !__atomic_load_n(&lane->dead, __ATOMIC_ACQUIRE));
		json_text(out, "owner", str_of(lane->owner));
		json_int(out, "executor", lane->executor - set->executors);
		json_int(out, "queueDepth", load(lane->queued));
		json_int(out, "dispatches", (int64_t)load(lane->stats.dispatches));
		json_int(out, "parks", (int64_t)load(lane->stats.parks));
		json_int(out, "resumes", (int64_t)load(lane->stats.resumes));
		json_int(out, "handoffs", (int64_t)load(lane->stats.handoffs));
		json_int(out, "claimBounces",
			 (int64_t)(load(lane->stats.bounces[BOUNCE_RELAY]) +
				   load(lane->stats.bounces[BOUNCE_TIMER]) +
				   load(lane->stats.bounces[BOUNCE_ADMIN])));
		json_int(out, "failures", (int64_t)load(lane->stats.failures));
		json_close(out, '}');
	}
	json_next(out, STR_NONE);
	admin_answer_json(request);
}

void admin_channels(struct admin_request *request)
{
	const struct admin_sources *sources = &request->admin->sources;
	uint32_t count = sources->channel_count(sources->user);
	struct buf *out = &request->body;

	list_open(out, "channels");
	for (uint32_t i = 0; i < count; i++) {
		struct admin_channel c;

		sources->channel_read(sources->user, i, &c);
		json_open(out, '{');
		json_text(out, "tenant", c.tenant);
		json_text(out, "channel", c.channel);
		json_text(out, "transport", c.transport);
		json_text(out, "bind", c.bind);
		json_text(out, "state", str_of(c.state));
		json_text(out, "detail", c.detail[0] ? str_of(c.detail) : STR_NONE);
		json_bool(out, "consuming", c.consuming);
		json_name(out, "deliveries");
		json_open(out, '{');
		json_int(out, "received", (int64_t)c.received);
		json_int(out, "committed", (int64_t)c.committed);
		json_int(out, "duplicate", (int64_t)c.duplicate);
		json_int(out, "refused", (int64_t)c.refused);
		json_int(out, "rejected", (int64_t)c.rejected);
		json_int(out, "unmatched", (int64_t)c.unmatched);
		json_int(out, "dropped", (int64_t)c.dropped);
		json_int(out, "unavailable", (int64_t)c.unavailable);
		json_int(out, "requeued", (int64_t)c.requeued);
		json_int(out, "persisted", (int64_t)c.persisted);
		json_int(out, "early", (int64_t)c.early);
		json_int(out, "gone", (int64_t)c.gone);
		json_close(out, '}');
		json_int(out, "held", (int64_t)c.held);
		json_int(out, "kept", (int64_t)c.kept);
		json_int(out, "unsettled", (int64_t)c.unsettled);
		json_name(out, "oldestHeldSeconds");
		buf_printf(out, "%.3f", c.oldest_held_seconds);
		if (c.lag < 0)
			json_null(out, "lag");
		else
			json_int(out, "lag", c.lag);
		json_close(out, '}');
	}
	json_next(out, STR_NONE);
	admin_answer_json(request);
}

static void leases_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct str boot = str_of(request->admin->sources.boot_id);
	struct buf *out = &request->body;

	list_open(out, "leases");
	for (uint32_t i = 0; i < rows->row_count; i++) {
		json_open(out, '{');
		json_text_field(out, "role", rows_at(rows, i, 0));
		json_text_field(out, "holder", rows_at(rows, i, 1));
		json_int(out, "term", rows_at(rows, i, 2)->i);
		json_time_field(out, "expiresAt", rows_at(rows, i, 3));
		json_bool(out, "self", str_equal(rows_at(rows, i, 1)->str, boot));
		json_close(out, '}');
	}
	json_next(out, STR_NONE);
	admin_answer_json(request);
}

void admin_leases(struct admin_request *request)
{
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_LEASE_LIST);
	admin_ask(request, false, leases_answered);
}
