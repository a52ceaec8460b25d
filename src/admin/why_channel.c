/* SPDX-License-Identifier: Apache-2.0 */
/* Why a channel does not consume, or consumes and does not get on: its state, and every delivery that this replica holds of it. */
#include "admin/why.h"

struct why_channel {
	struct why_ask ask;
	struct admin_channel channel;
	int64_t index;
};

static void state_cause(struct buf *causes, const struct admin_channel *channel)
{
	struct why_cause cause = {WHY_REPLICA, "not-consuming", CODE_NONE,
				  "Mend what it says; consumption begins by itself. `sutra doctor` checks brokers, topics and "
				  "queues."};

	if (!channel->consuming) {
		why_cause(causes, &cause, "the channel does not consume: %s%s%s", channel->state,
			  channel->detail[0] ? ": " : "", channel->detail);
		return;
	}
	if (channel->at_bounds) {
		cause.cause = "bounds";
		cause.remedy = "Free what the held messages wait for, by the causes below; more room only delays it.";
		why_cause(causes, &cause, "%s", channel->detail);
	}
	if (!channel->held && !channel->kept) {
		cause.cause = "moving";
		cause.remedy = "Nothing.";
		why_cause(causes, &cause, "the channel consumes, and nothing of it is held here");
	}
}

static void channel_inspected(struct admin_request *request)
{
	const struct why_channel *why = request->state;
	const struct inspection *found = &why->ask.inspection;
	struct buf *out = &request->body, causes = BUF_INIT;

	why_open(request, "channel", request->id);
	json_text(out, "state", str_of(why->channel.state));
	json_text(out, "detail", why->channel.detail[0] ? str_of(why->channel.detail) : STR_NONE);
	json_int(out, "held", (int64_t)why->channel.held);
	json_int(out, "kept", (int64_t)why->channel.kept);
	json_int(out, "unsettled", (int64_t)why->channel.unsettled);
	state_cause(&causes, &why->channel);
	json_int(out, "deliveryCount", found->matches);
	json_name(out, "deliveries");
	json_open(out, '[');
	for (uint32_t i = 0; i < found->count; i++) {
		why_delivery(request, &found->found[i], why->channel.channel);
		why_delivery_cause(request, &causes, &found->found[i], why->channel.channel);
	}
	json_close(out, ']');
	why_close(request, &causes);
}

void admin_why_channel(struct admin_request *request)
{
	struct why_channel *why = request->state = arena_zalloc(&request->arena, sizeof(*why));
	ptrdiff_t slash = str_find(request->id, '/');
	struct str tenant = str_make(request->id.ptr, slash < 0 ? 0 : (size_t)slash);
	struct str channel = slash < 0 ? STR("") : str_make(request->id.ptr + slash + 1, request->id.len - (size_t)slash - 1);

	why->index = why_channel_find(request, tenant, channel, &why->channel);
	if (why->index < 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "this replica consumes no such channel; write TENANT/CHANNEL");
		return;
	}
	why_inspect(request, why->index, &why->ask, channel_inspected);
}
