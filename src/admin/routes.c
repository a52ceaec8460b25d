/* SPDX-License-Identifier: Apache-2.0 */
/* Every route, in one table. All are read-only, so GET and HEAD are the methods of each. */
#include "admin/internal.h"

static const struct admin_route routes[] = {
	{"/sutra/health/live", true, admin_health_live, ""},
	{"/sutra/health/ready", true, admin_health_ready, ""},
	{"/metrics", true, admin_metrics, ""},
	{"/sutra/deployments", true, admin_deployments_open, " limit cursor "},
	{"/sutra/deployments/", true, admin_deployment_open, ""},
	{"/admin/deployments", false, admin_deployments, " limit cursor "},
	{"/admin/deployments/", false, admin_deployment, ""},
	{"/admin/instances", false, admin_instances,
	 " limit cursor status deployment includeTerminal alias "},
	{"/admin/instances/", false, admin_instance, ""},
	{"/admin/outbox", false, admin_outbox, " limit cursor "},
	{"/admin/dead-letters", false, admin_dead_letters, " limit cursor "},
	{"/admin/dead-letters/", false, admin_dead_letter, ""},
	{"/admin/kept", false, admin_kept, " limit cursor tenant channel "},
	{"/admin/why/message/*", false, admin_why_message, ""},
	{"/admin/why/instance/", false, admin_why_instance, ""},
	{"/admin/why/channel/*", false, admin_why_channel, ""},
	{"/admin/lanes", false, admin_lanes, ""},
	{"/admin/leases", false, admin_leases, ""},
	{"/admin/channels", false, admin_channels, ""},
};

const struct admin_route *admin_route_find(const char *path, struct str *id)
{
	struct str text = str_of(path);

	*id = STR_NONE;
	for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
		struct str route = str_of(routes[i].path);
		bool is_deep = route.ptr[route.len - 1] == '*';

		route.len -= is_deep;
		if (route.ptr[route.len - 1] != '/') {
			if (str_equal(text, route))
				return &routes[i];
			continue;
		}
		if (!str_starts_with(text, route) || text.len == route.len)
			continue;
		*id = str_make(text.ptr + route.len, text.len - route.len);
		if (is_deep || str_find(*id, '/') < 0)
			return &routes[i];
		*id = STR_NONE;
	}
	return NULL;
}
