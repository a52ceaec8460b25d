/* SPDX-License-Identifier: Apache-2.0 */
/* Every route, in one table. What reads takes GET and HEAD; what changes something takes POST. */
#include "admin/internal.h"

static const struct admin_route routes[] = {
	{ADMIN_GET, "/sutra/health/live", true, admin_health_live, ""},
	{ADMIN_GET, "/sutra/health/ready", true, admin_health_ready, ""},
	{ADMIN_GET, "/metrics", true, admin_metrics, ""},
	{ADMIN_GET, "/sutra/deployments", true, admin_deployments_open, " limit cursor "},
	{ADMIN_GET, "/sutra/deployments/{}", true, admin_deployment_open, ""},
	{ADMIN_GET, "/admin/deployments", false, admin_deployments, " limit cursor "},
	{ADMIN_GET, "/admin/deployments/{}", false, admin_deployment, ""},
	{ADMIN_GET, "/admin/instances", false, admin_instances,
	 " limit cursor status deployment includeTerminal alias "},
	{ADMIN_GET, "/admin/instances/{}", false, admin_instance, ""},
	{ADMIN_POST, "/admin/instances/{}/cancel", false, admin_instance_cancel, ""},
	{ADMIN_POST, "/admin/instances/{}/restore", false, admin_instance_restore, ""},
	{ADMIN_POST, "/admin/instances/{}/waits/{}/complete", false, admin_instance_complete, ""},
	{ADMIN_GET, "/admin/outbox", false, admin_outbox, " limit cursor "},
	{ADMIN_POST, "/admin/outbox/{}/retry", false, admin_outbox_retry, ""},
	{ADMIN_GET, "/admin/dead-letters", false, admin_dead_letters, " limit cursor "},
	{ADMIN_GET, "/admin/dead-letters/{}", false, admin_dead_letter, ""},
	{ADMIN_POST, "/admin/dead-letters/{}/replay", false, admin_dead_letter_replay, ""},
	{ADMIN_GET, "/admin/kept", false, admin_kept, " limit cursor tenant channel "},
	{ADMIN_GET, "/admin/why/message/*", false, admin_why_message, ""},
	{ADMIN_GET, "/admin/why/instance/{}", false, admin_why_instance, ""},
	{ADMIN_GET, "/admin/why/channel/*", false, admin_why_channel, ""},
	{ADMIN_GET, "/admin/lanes", false, admin_lanes, ""},
	{ADMIN_GET, "/admin/leases", false, admin_leases, ""},
	{ADMIN_GET, "/admin/channels", false, admin_channels, ""},
};

/* Whether the path is of this form; `found` gets what stands for the wildcards, which are never empty. */
static bool route_matches(const char *form, const char *path, struct str found[2])
{
	uint32_t count = 0;
	size_t len;

	for (;;) {
		if (form[0] == '*' && form[1] == '\0' && *path) {
			found[count] = str_of(path);
			return true;
		}
		if (form[0] == '{') {
			len = strcspn(path, "/");
			if (!len)
				return false;
			found[count++] = str_make(path, len);
			path += len;
			form += 2;
		}
		if (*form != *path)
			return false;
		if (!*form)
			return true;
		form++;
		path++;
	}
}

static bool method_is(const struct admin_route *route, const char *method)
{
	if (route->method == ADMIN_POST)
		return strcmp(method, MHD_HTTP_METHOD_POST) == 0;
	return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

const struct admin_route *admin_route_find(struct admin_request *request)
{
	bool gets = false, posts = false;

	for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
		struct str found[2] = {STR_NONE, STR_NONE};

		if (!route_matches(routes[i].path, request->path, found))
			continue;
		gets |= routes[i].method == ADMIN_GET;
		posts |= routes[i].method == ADMIN_POST;
		request->id = found[0];
		request->id_below = found[1];
		if (method_is(&routes[i], request->method))
			return &routes[i];
	}
	request->allow = gets && posts ? "GET, HEAD, POST" : gets ? "GET, HEAD" : posts ? "POST" : NULL;
	return NULL;
}
