/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the roles: leases, the work done under them, and the one way to the store. Everything runs on the roles' loop.
 *
 *	             LEASE_ACQUIRE: held                     renewed in time
 *	FOLLOWING ───────────────────────► LEADING ◄────────────────────────┐
 *	    ▲                                 │  └──────────────────────────┘
 *	    └─────────────────────────────────┘
 *	      somebody else holds it, or no renewal was confirmed in time
 */
#ifndef SUTRA_ROLES_INTERNAL_H
#define SUTRA_ROLES_INTERNAL_H

#include "base/loop.h"
#include "roles/roles.h"

struct roles;

#define QUERY_PARAMS 8

/* A store query with the memory it needs; at most one use at a time. */
struct role_query {
	struct store_query query;
	struct arena arena; /* emptied with the next use */
	struct segment_call call;
	struct column params[QUERY_PARAMS];
	struct roles *roles;
	bool busy;
	void (*answered)(struct role_query *query); /* look at query.base.outcome and call.rows */
};
void role_query_init(struct role_query *query, struct roles *roles,
		     void (*answered)(struct role_query *query));
void role_query_done(struct role_query *query);
/* Empties it for the next statement. */
void role_query_begin(struct role_query *query, enum statement_id statement);
/* Scalar parameters; the value is copied, a text borrowed. */
void role_query_int(struct role_query *query, uint32_t param, int64_t value);
void role_query_id(struct role_query *query, uint32_t param, struct id value);
void role_query_text(struct role_query *query, uint32_t param, const char *value);
/* Other columns and the tenants are set in `params` and in query.segment. */
void role_query_send(struct role_query *query, bool scan, bool durable, bool writes);

/* Work done under a lease: run at once when it is gained, then every interval. */
struct role_work {
	/* Begins a round. It ends by lease_round_done, and gives up between two queries if lease_is_good says no. */
	void (*run)(struct role_work *work);
};

struct lease {
	struct roles *roles;
	const char *role;
	int64_t ttl_ms;
	struct role_work *work; /* NULL: the lease is all */
	int64_t interval_ms;    /* between two rounds of the work */
	bool held;             /* atomic */
	int64_t term;          /* atomic */
	int64_t good_until_us; /* the loop's clock */
	int64_t asked_us;
	bool in_round;
	bool releasing;
	struct loop_timer poll, expiry, next_round;
	struct role_query query;
};
void lease_init(struct lease *lease, struct roles *roles, const char *role, int64_t ttl_ms,
		int64_t interval_ms, struct role_work *work);
void lease_done(struct lease *lease);
void lease_start(struct lease *lease);
/* Gives it up; roles_check_idle is called when that is done. */
void lease_stop(struct lease *lease);
/* Whether this replica may still act under it. */
bool lease_is_good(const struct lease *lease);
void lease_round_done(struct lease *lease);

/* instance-sweeper */
struct sweeper {
	struct role_work work;
	struct lease *lease;
	struct role_query tidy, query;
	struct loop_timer pause;
	struct id after;
	uint64_t cleared; /* in this round */
};
void sweeper_init(struct sweeper *sweeper, struct roles *roles, struct lease *lease);
void sweeper_done(struct sweeper *sweeper);

/* What of the deployments unfinished work needs, found out along the retention sweeper's way (pins.c). */
struct pins {
	struct roles *roles;
	struct arena arena; /* of a round */
	struct pin {
		struct str id;
		bool leaving, seen;
	} *pins;
	uint32_t count;
	struct role_query list, outbox, write;
	struct loop_timer pause;
	/* Goes on when a part is done; false: the round is over. */
	void (*then)(struct pins *pins, bool ok);
};
void pins_init(struct pins *pins, struct roles *roles);
void pins_done(struct pins *pins);
/* Begins a round: what deployments there are. */
void pins_begin(struct pins *pins, void (*then)(struct pins *pins, bool ok));
/* An unfinished instance of this deployment was seen. */
void pins_see(struct pins *pins, struct str deployment);
/* All instances were seen: looks at the outbox, then writes what is known. */
void pins_end(struct pins *pins, void (*then)(struct pins *pins, bool ok));

/* retention-sweeper */
struct retention {
	struct role_work work;
	struct lease *lease;
	struct role_query find, remove, purge;
	struct pins pins;
	struct loop_timer pause;
	struct id after;
	bool last_page, purging;
	bool at_letters; /* event ids are done, dead letters come */
	uint64_t instances, inbox, letters; /* in this round */
};
void retention_init(struct retention *retention, struct roles *roles, struct lease *lease);
void retention_done(struct retention *retention);

/* How long a sweep rests between two pages, so that it is never what the database is busy with. */
#define PAGE_PAUSE_US (20 * US_PER_MS)

struct timers;

struct roles {
	struct loop *loop;
	struct store *store;
	struct lane_set *lanes;
	struct roles_settings settings;
	struct lease sweep_lease, retention_lease, keeper_lease, timer_lease;
	char keeper_role[64];
	struct sweeper sweeper;
	struct retention retention;
	struct timers *timers;
	struct loop_timer stall;
	uint32_t dead_lanes;
	uint32_t queries_out; /* also timers on their way */
	bool started, stopping;
	bool idle; /* atomic: stopping, and no query is out */
	/* Atomic. */
	uint64_t claims_swept, instances_purged, inbox_purged, dead_letters_purged;
};
void roles_check_idle(struct roles *roles);

#define count_add(field, n) __atomic_add_fetch(&(field), (uint64_t)(n), __ATOMIC_RELAXED)

#endif
