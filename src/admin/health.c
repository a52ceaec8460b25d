/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health. Live says whether a restart would help: only a dead lane is worth one. Ready says whether this replica can do its
 * work: a dead lane, an unreachable database or nothing loaded make it DOWN; a channel that does not consume says so in a
 * check of its own and leaves the rest alone, for the other channels go on.
 */
#include "admin/internal.h"

static void check_open(struct buf *out, const char *name, bool up)
{
	json_open(out, '{');
	json_text(out, "name", str_of(name));
	json_text(out, "status", up ? STR("UP") : STR("DOWN"));
	json_name(out, "data");
	buf_add_byte(out, '{');
}

static void check_close(struct buf *out)
{
	json_close(out, '}');
	json_close(out, '}');
}

static bool check_loader(struct admin *admin, struct buf *out)
{
	bool up = admin->view != NULL;

	check_open(out, "sutra-loader", up);
	json_int(out, "shards", lane_set_alive(admin->sources.lanes));
	json_int(out, "deployments", up ? admin->view->member_count : 0);
	if (!up)
		json_text(out, "reason", STR("no view: the deployments are not loaded yet"));
	check_close(out);
	return up;
}

static bool check_database(struct admin *admin, struct buf *out)
{
	struct buf why = BUF_INIT;
	bool up = store_is_up(admin->sources.store, &why);

	check_open(out, "database", up);
	json_text(out, "store", admin->sources.memory_store ? STR("memory") : STR("postgresql"));
	if (!up)
		json_text(out, "reason", why.len ? buf_str(&why) : STR("not connected"));
	check_close(out);
	buf_done(&why);
	return up;
}

static bool check_lanes(struct admin *admin, struct buf *out)
{
	uint32_t lanes = admin->sources.lanes->settings.lanes;
	uint32_t dead = lanes - lane_set_alive(admin->sources.lanes);

	check_open(out, "lanes", dead == 0);
	json_int(out, "lanes", lanes);
	json_int(out, "deadLanes", dead);
	check_close(out);
	return dead == 0;
}

static void check_channels(struct admin *admin, struct buf *out)
{
	const struct admin_sources *sources = &admin->sources;
	uint32_t count = sources->channel_count(sources->user);

	for (uint32_t i = 0; i < count; i++) {
		struct admin_channel channel;
		struct buf name = BUF_INIT;

		sources->channel_read(sources->user, i, &channel);
		buf_printf(&name, "channel:%.*s/%.*s", STR_ARG(channel.tenant),
			   STR_ARG(channel.channel));
		check_open(out, name.data, channel.consuming);
		json_text(out, "state", str_of(channel.state));
		json_text(out, "detail", channel.detail[0] ? str_of(channel.detail) : STR_NONE);
		json_text(out, "transport", channel.transport);
		json_text(out, "bind", channel.bind);
		check_close(out);
		buf_done(&name);
	}
}

static void health_answer(struct admin_request *request, bool up, struct buf *checks)
{
	struct buf *out = &request->body;

	json_open(out, '{');
	json_text(out, "status", up ? STR("UP") : STR("DOWN"));
	json_name(out, "checks");
	buf_add_byte(out, '[');
	buf_add_str(out, buf_str(checks));
	json_close(out, ']');
	json_close(out, '}');
	buf_done(checks);
	admin_answer(request, up ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, "application/json");
}

void admin_health_ready(struct admin_request *request)
{
	struct buf checks = BUF_INIT;
	bool up = check_loader(request->admin, &checks);

	up &= check_database(request->admin, &checks);
	up &= check_lanes(request->admin, &checks);
	check_channels(request->admin, &checks);
	health_answer(request, up, &checks);
}

void admin_health_live(struct admin_request *request)
{
	struct buf checks = BUF_INIT;
	bool up = check_lanes(request->admin, &checks);

	health_answer(request, up, &checks);
}
