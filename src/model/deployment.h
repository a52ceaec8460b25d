/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deployments: one package, read, checked and ready to run; and views: the set of deployments that a replica serves,
 * with the tables that route a message.
 *
 * Life cycle: both are immutable and counted; `_unref` of the last frees. A view holds its deployments.
 * Threads: _ref/_unref from any; the rest is read-only.
 */
#ifndef SUTRA_MODEL_DEPLOYMENT_H
#define SUTRA_MODEL_DEPLOYMENT_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "model/channel.h"
#include "model/process.h"

#define DEPLOYMENT_ID_SIZE 29 /* "dep-" and 24 hex digits and a NUL */

struct deployment {
	atomic_uint refs;
	struct arena arena; /* everything below lives here */
	struct str id;
	struct str tenant;
	struct str module;
	struct str version;
	struct channel **channels;
	uint32_t channel_count;
	struct process **processes;
	uint32_t process_count;
	struct expression_set expressions;
	struct str archive; /* the deterministic archive, as stored in the database */
};

/* An empty one with one reference, to be filled before anybody else sees it. */
struct deployment *deployment_new(void);
struct deployment *deployment_ref(struct deployment *deployment);
void deployment_unref(struct deployment **deployment);
const struct channel *deployment_channel(const struct deployment *deployment, struct str name);
const struct process *deployment_process(const struct deployment *deployment, struct str id);

enum deployment_phase {
	DEPLOYMENT_PENDING,
	DEPLOYMENT_ACTIVE,
	DEPLOYMENT_DRAINING,
	DEPLOYMENT_FAILED,
	DEPLOYMENT_RETIRED,
};
const char *deployment_phase_name(enum deployment_phase phase); /* "Active" … */

/* A start event or wait that subscribes to a channel. */
struct subscription {
	struct deployment *deployment;
	const struct node *node;
};

/* Everything that a view knows about one inbound (tenant, channel). */
struct route {
	struct str tenant;
	const struct channel
		*channel; /* of the Active deployment that declares it, else of a Draining one */
	struct deployment *deployment; /* whose `channel` that is */
	struct subscription *starts;   /* of Active deployments */
	uint32_t start_count;
	struct subscription *draining_starts;
	uint32_t draining_start_count;
	struct subscription *waits; /* of Active and Draining deployments; Active first */
	uint32_t wait_count;
};

struct view_member {
	struct deployment *deployment;
	enum deployment_phase phase; /* ACTIVE or DRAINING */
};

struct view {
	atomic_uint refs;
	uint64_t number; /* grows with every view of this replica */
	struct view_member *members;
	uint32_t member_count;
	struct route **routes; /* sorted by tenant, channel */
	uint32_t route_count;
	struct map by_channel; /* internal */
	struct map by_deployment;
	struct arena arena;
};

/*
 * Takes a reference of each member. Cross-deployment rules are checked here (one handler per channel and type, equal
 * channel settings, no source consumed twice): RESULT_REJECT with all reasons in `findings`, one a line.
 */
enum result view_build(uint64_t number, const struct view_member *members, uint32_t member_count,
		       struct view **out, struct buf *findings) MUST_CHECK;
struct view *view_ref(struct view *view);
void view_unref(struct view **view);
/* NULL if nothing consumes it. */
const struct route *view_route(const struct view *view, struct str tenant, struct str channel);
/* NULL if it is not loaded. */
const struct view_member *view_deployment(const struct view *view, struct str deployment_id);

#endif
