/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: what a replica serves, as tables that route a message.
 *
 * Active deployments decide: they declare channels, and their starts take spawns. Draining ones stay reachable: their waits
 * are subscribed beside, behind the Active ones, and a channel that only they know is consumed as long as they wait on it.
 * Their starts are kept apart, so that a spawn that only they could take can be told from one that nobody takes.
 *
 * The rules between deployments are those of channel_check.c between the processes of one.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "model/build.h"

struct make {
	struct view *view;
	struct buf *findings;
	unsigned errors;
};

static void finding(struct make *make, enum code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void finding(struct make *make, enum code code, const char *fmt, ...)
{
	va_list ap;

	make->errors++;
	if (make->errors > 1000)
		return;
	buf_printf(make->findings, "%s: ", code_text(code));
	va_start(ap, fmt);
	buf_vprintf(make->findings, fmt, ap);
	va_end(ap);
	buf_add_byte(make->findings, '\n');
}

/* Neither name can hold the byte between. */
static struct str route_key(struct arena *arena, struct str tenant, struct str channel)
{
	return str_make(arena_printf(arena, "%.*s/%.*s", STR_ARG(tenant), STR_ARG(channel)),
			tenant.len + 1 + channel.len);
}

static bool waits_on(const struct deployment *deployment, struct str channel)
{
	for (uint32_t i = 0; i < deployment->process_count; i++) {
		const struct process *process = deployment->processes[i];

		for (uint32_t j = 0; j < process->node_count; j++)
			if (node_is_wait(process->nodes[j]) && process->nodes[j]->source &&
			    str_equal(process->nodes[j]->source->channel, channel))
				return true;
	}
	return false;
}

static void add_subscription(struct arena *arena, struct subscription **list, uint32_t *count,
			     struct deployment *deployment, const struct node *node)
{
	*list = build_grow(arena, *list, *count, sizeof(**list));
	(*list)[(*count)++] = (struct subscription){deployment, node};
}

static void add_routes(struct make *make, const struct view_member *member)
{
	struct deployment *deployment = member->deployment;
	struct view *view = make->view;

	for (uint32_t i = 0; i < deployment->channel_count; i++) {
		const struct channel *channel = deployment->channels[i];
		struct str key;
		struct route *route;

		if (channel->direction != CHANNEL_INBOUND ||
		    (member->phase == DEPLOYMENT_DRAINING && !waits_on(deployment, channel->name)))
			continue;
		key = route_key(&view->arena, deployment->tenant, channel->name);
		if (map_get(&view->by_channel, key))
			continue;
		route = arena_zalloc(&view->arena, sizeof(*route));
		route->tenant = deployment->tenant;
		route->channel = channel;
		route->deployment = deployment;
		map_put(&view->by_channel, key, route);
		view->routes = build_grow(&view->arena, view->routes, view->route_count,
					  sizeof(view->routes[0]));
		view->routes[view->route_count++] = route;
	}
}

static void add_subscriptions(struct make *make, const struct view_member *member)
{
	struct deployment *deployment = member->deployment;
	struct arena *arena = &make->view->arena;

	for (uint32_t i = 0; i < deployment->process_count; i++) {
		const struct process *process = deployment->processes[i];

		for (uint32_t j = 0; j < process->node_count; j++) {
			const struct node *node = process->nodes[j];
			struct route *route;

			if (!node->source)
				continue;
			route = map_get(
				&make->view->by_channel,
				route_key(arena, deployment->tenant, node->source->channel));
			if (!route)
				continue; /* a start that only a draining deployment has */
			if (node_is_wait(node))
				add_subscription(arena, &route->waits, &route->wait_count,
						 deployment, node);
			else if (member->phase == DEPLOYMENT_ACTIVE)
				add_subscription(arena, &route->starts, &route->start_count,
						 deployment, node);
			else
				add_subscription(arena, &route->draining_starts,
						 &route->draining_start_count, deployment, node);
		}
	}
}

static void check_channels(struct make *make, const struct deployment *a,
			   const struct deployment *b)
{
	for (uint32_t i = 0; i < a->channel_count; i++) {
		const struct channel *other = deployment_channel(b, a->channels[i]->name);

		if (other && !channel_same_settings(a->channels[i], other))
			finding(make, CODE_CONFIG_CHANNEL_CONFLICT,
				"channel \"%.*s\" of tenant %.*s has other settings in module %.*s "
				"(%s "
				"line %d) than in module %.*s (%s line %d)",
				STR_ARG(other->name), STR_ARG(a->tenant), STR_ARG(b->module),
				other->file, other->line, STR_ARG(a->module), a->channels[i]->file,
				a->channels[i]->line);
	}
}

static void check_members(struct make *make)
{
	const struct view *view = make->view;

	for (uint32_t i = 0; i < view->member_count; i++) {
		const struct deployment *a = view->members[i].deployment;

		for (uint32_t j = i + 1; j < view->member_count; j++) {
			const struct deployment *b = view->members[j].deployment;

			if (str_equal(a->id, b->id))
				finding(make, CODE_DEPLOY_CONFLICT,
					"the deployment %.*s stands there twice", STR_ARG(a->id));
			if (view->members[i].phase != DEPLOYMENT_ACTIVE ||
			    view->members[j].phase != DEPLOYMENT_ACTIVE ||
			    !str_equal(a->tenant, b->tenant))
				continue;
			if (str_equal(a->module, b->module))
				finding(make, CODE_DEPLOY_CONFLICT,
					"two packages of tenant %.*s and module %.*s: %.*s and "
					"%.*s",
					STR_ARG(a->tenant), STR_ARG(a->module), STR_ARG(a->id),
					STR_ARG(b->id));
			else
				check_channels(make, a, b);
		}
	}
}

static bool is_active(const struct view *view, const struct deployment *deployment)
{
	for (uint32_t i = 0; i < view->member_count; i++)
		if (view->members[i].deployment == deployment)
			return view->members[i].phase == DEPLOYMENT_ACTIVE;
	return false;
}

static void check_pair(struct make *make, const struct route *route, const struct subscription *a,
		       const struct subscription *b)
{
	/* Inside one deployment it was checked when that was built. */
	if (a->deployment == b->deployment || route->channel->broadcast ||
	    !source_types_overlap(a->node->source, b->node->source))
		return;
	finding(make, CODE_INBOUND_AMBIGUOUS_HANDLER,
		"a message on channel \"%.*s\" of tenant %.*s could be for %.*s (module %.*s, %s "
		"line %d) "
		"and for %.*s (module %.*s, %s line %d)",
		STR_ARG(route->channel->name), STR_ARG(route->tenant), STR_ARG(a->node->id),
		STR_ARG(a->deployment->module), a->node->process->file, a->node->source->line,
		STR_ARG(b->node->id), STR_ARG(b->deployment->module), b->node->process->file,
		b->node->source->line);
}

static void check_handlers(struct make *make, const struct route *route)
{
	const struct subscription **all;
	uint32_t count = 0;
	struct arena arena;

	arena_init(&arena);
	all = arena_alloc(&arena, sizeof(all[0]) * (route->start_count + route->wait_count + 1));
	for (uint32_t i = 0; i < route->start_count; i++)
		all[count++] = &route->starts[i];
	for (uint32_t i = 0; i < route->wait_count; i++)
		if (is_active(make->view, route->waits[i].deployment))
			all[count++] = &route->waits[i];
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = i + 1; j < count; j++)
			check_pair(make, route, all[i], all[j]);
	arena_done(&arena);
}

static int compare_routes(const void *a, const void *b)
{
	const struct route *const *x = a, *const *y = b;
	int order = str_compare((*x)->tenant, (*y)->tenant);

	return order ? order : str_compare((*x)->channel->name, (*y)->channel->name);
}

static void check_routes(struct make *make)
{
	struct view *view = make->view;

	if (view->route_count)
		qsort(view->routes, view->route_count, sizeof(view->routes[0]), compare_routes);
	for (uint32_t i = 0; i < view->route_count; i++) {
		const struct route *a = view->routes[i];

		check_handlers(make, a);
		for (uint32_t j = i + 1; j < view->route_count; j++) {
			const struct route *b = view->routes[j];

			if (channel_same_origin(a->channel, b->channel) &&
			    str_equal(a->channel->transport, STR("amqp")))
				finding(make, CODE_CONFIG_CHANNEL_CONFLICT,
					"channels \"%.*s\" of tenant %.*s and \"%.*s\" of tenant %.*s consume "
					"the same queue %.*s",
					STR_ARG(a->channel->name), STR_ARG(a->tenant),
					STR_ARG(b->channel->name), STR_ARG(b->tenant),
					STR_ARG(a->channel->bind));
			else if (channel_same_origin(a->channel, b->channel))
				finding(make, CODE_CONFIG_CHANNEL_CONFLICT,
					"channels \"%.*s\" of tenant %.*s and \"%.*s\" of tenant "
					"%.*s "
					"consume the same topic %.*s in the same group %.*s",
					STR_ARG(a->channel->name), STR_ARG(a->tenant),
					STR_ARG(b->channel->name), STR_ARG(b->tenant),
					STR_ARG(a->channel->bind), STR_ARG(a->channel->group));
		}
	}
}

enum result view_build(uint64_t number, const struct view_member *members, uint32_t member_count,
		       struct view **out, struct buf *findings)
{
	static const enum deployment_phase passes[] = {DEPLOYMENT_ACTIVE, DEPLOYMENT_DRAINING};
	struct view *view = mem_zalloc(sizeof(*view));
	struct make make = {.view = view, .findings = findings};

	atomic_init(&view->refs, 1);
	arena_init(&view->arena);
	map_init(&view->by_channel);
	map_init(&view->by_deployment);
	view->number = number;
	view->members = arena_alloc(&view->arena, sizeof(members[0]) * (member_count + 1));
	for (uint32_t i = 0; i < member_count; i++) {
		assert(members[i].phase == DEPLOYMENT_ACTIVE ||
		       members[i].phase == DEPLOYMENT_DRAINING);
		view->members[view->member_count++] = (struct view_member){
			deployment_ref(members[i].deployment), members[i].phase};
		map_put(&view->by_deployment, members[i].deployment->id, &view->members[i]);
	}
	check_members(&make);
	for (size_t pass = 0; pass < ARRAY_LEN(passes); pass++)
		for (uint32_t i = 0; i < member_count; i++)
			if (members[i].phase == passes[pass])
				add_routes(&make, &view->members[i]);
	for (size_t pass = 0; pass < ARRAY_LEN(passes); pass++)
		for (uint32_t i = 0; i < member_count; i++)
			if (members[i].phase == passes[pass])
				add_subscriptions(&make, &view->members[i]);
	check_routes(&make);
	if (make.errors) {
		view_unref(&view);
		return RESULT_REJECT;
	}
	*out = view;
	return RESULT_OK;
}

struct view *view_ref(struct view *view)
{
	atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
	return view;
}

void view_unref(struct view **view)
{
	struct view *gone = *view;

	*view = NULL;
	if (!gone || atomic_fetch_sub_explicit(&gone->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (uint32_t i = 0; i < gone->member_count; i++)
		deployment_unref(&gone->members[i].deployment);
	map_done(&gone->by_channel);
	map_done(&gone->by_deployment);
	arena_done(&gone->arena);
	free(gone);
}

const struct route *view_route(const struct view *view, struct str tenant, struct str channel)
{
	char key[BUILD_NAME_MAX * 2];

	/* Longer names are nobody's. */
	if (tenant.len + channel.len + 1 > sizeof(key))
		return NULL;
	memcpy(key, tenant.ptr, tenant.len);
	key[tenant.len] = '/';
	memcpy(key + tenant.len + 1, channel.ptr, channel.len);
	return map_get(&view->by_channel, str_make(key, tenant.len + 1 + channel.len));
}

const struct view_member *view_deployment(const struct view *view, struct str deployment_id)
{
	return map_get(&view->by_deployment, deployment_id);
}
