/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics as Prometheus reads them (text format 0.0.4). Everything is counted elsewhere with atomics and only printed here,
 * so a scrape costs the replica nothing but the printing; nothing asks the database.
 */
#include "admin/internal.h"
#include "base/time.h"

#define load(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

static void family(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value, quoted. */
static void label(struct buf *out, const char *name, struct str value)
{
	buf_printf(out, "%s=\"", name);
	for (size_t i = 0; i < value.len; i++) {
		char c = value.ptr[i];

		if (c == '\\' || c == '"')
			buf_add_byte(out, '\\');
		if (c == '\n')
			buf_add_text(out, "\\n");
		else
			buf_add_byte(out, c);
	}
	buf_add_byte(out, '"');
}

static void sample(struct buf *out, const char *name, const char *label_name,
		   const char *label_value, uint64_t value)
{
	buf_add_text(out, name);
	if (label_name) {
		buf_add_byte(out, '{');
		label(out, label_name, str_of(label_value));
		buf_add_byte(out, '}');
	}
	buf_printf(out, " %llu\n", (unsigned long long)value);
}

static void single(struct buf *out, const char *name, const char *type, const char *help,
		   uint64_t value)
{
	family(out, name, type, help);
	sample(out, name, NULL, NULL, value);
}

static void seconds(struct buf *out, int64_t us)
{
	buf_printf(out, "%lld.%06lld", (long long)(us / US_PER_S), (long long)(us % US_PER_S));
}

static void histogram(struct buf *out, const char *name, const char *help,
		      const struct histogram *h)
{
	uint64_t below = 0;

	family(out, name, "histogram", help);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		below += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
		buf_printf(out, "%s_bucket{le=\"", name);
		if (i < HISTOGRAM_BUCKETS - 1)
			seconds(out, histogram_bound_us(i));
		else
			buf_add_text(out, "+Inf");
		buf_printf(out, "\"} %llu\n", (unsigned long long)below);
	}
	buf_printf(out, "%s_sum ", name);
	seconds(out, (int64_t)atomic_load_explicit(&h->sum_us, memory_order_relaxed));
	/* What was added since the buckets were read is in the next scrape. */
	buf_printf(out, "\n%s_count %llu\n", name, (unsigned long long)below);
}

/* --- lanes --- */

enum lane_metric { QUEUE_DEPTH, DISPATCHES, PARKS, RESUMES, HANDOFFS, FAILURES };

static uint64_t lane_value(const struct lane *lane, enum lane_metric metric)
{
	switch (metric) {
	case QUEUE_DEPTH:
		return load(lane->queued);
	case DISPATCHES:
		return load(lane->stats.dispatches);
	case PARKS:
		return load(lane->stats.parks);
	case RESUMES:
		return load(lane->stats.resumes);
	case HANDOFFS:
		return load(lane->stats.handoffs);
	case FAILURES:
		return load(lane->stats.failures);
	}
	return 0;
}

static void lane_metrics(struct admin *admin, struct buf *out)
{
	static const struct {
		const char *name, *type, *help;
		enum lane_metric metric;
	} metrics[] = {
		{"sutra_lane_queue_depth", "gauge",
		 "Requests in the mailbox of a lane or under way.", QUEUE_DEPTH},
		{"sutra_lane_dispatches_total", "counter", "Requests a lane has begun.",
		 DISPATCHES},
		{"sutra_lane_parks_total", "counter", "New instances that a lane has committed.",
		 PARKS},
		{"sutra_lane_resumes_total", "counter",
		 "Instances that a lane has taken a step further.", RESUMES},
		{"sutra_lane_handoffs_total", "counter",
		 "Requests a lane has handed to the lane of their instance.", HANDOFFS},
		{"sutra_lane_failures_total", "counter", "Steps that ended an instance as FAILED.",
		 FAILURES},
	};
	static const char *const bounce_kinds[BOUNCE_KIND_COUNT] = {
		[BOUNCE_RELAY] = "relay", [BOUNCE_TIMER] = "timer", [BOUNCE_ADMIN] = "admin"};
	const struct lane_set *set = admin->sources.lanes;

	for (size_t i = 0; i < ARRAY_LEN(metrics); i++) {
		family(out, metrics[i].name, metrics[i].type, metrics[i].help);
		for (uint32_t lane = 0; lane < set->settings.lanes; lane++)
			buf_printf(out, "%s{lane=\"%u\"} %llu\n", metrics[i].name, lane,
				   (unsigned long long)lane_value(&set->lanes[lane],
								  metrics[i].metric));
	}
	family(out, "sutra_lane_claim_bounces_total", "counter", "Claims that a lane was refused.");
	for (uint32_t lane = 0; lane < set->settings.lanes; lane++)
		for (uint32_t kind = 0; kind < BOUNCE_KIND_COUNT; kind++)
			buf_printf(out, "sutra_lane_claim_bounces_total{lane=\"%u\",kind=\"%s\"} %llu\n",
				   lane, bounce_kinds[kind],
				   (unsigned long long)load(set->lanes[lane].stats.bounces[kind]));
	family(out, "sutra_lanes", "gauge", "Lanes by state.");
	sample(out, "sutra_lanes", "state", "alive", lane_set_alive(set));
	sample(out, "sutra_lanes", "state", "dead", set->settings.lanes - lane_set_alive(set));
}

/* --- channels --- */

static void channel_labels(struct buf *out, const char *name, const struct admin_channel *channel)
{
	buf_printf(out, "%s{", name);
	label(out, "tenant", channel->tenant);
	buf_add_byte(out, ',');
	label(out, "channel", channel->channel);
}

static void channel_outcomes(struct buf *out, const struct admin_channel *c)
{
	const struct {
		const char *name;
		uint64_t count;
	} outcomes[] = {
		{"received", c->received},   {"committed", c->committed},
		{"duplicate", c->duplicate}, {"refused", c->refused},
		{"rejected", c->rejected},   {"unmatched", c->unmatched},
		{"dropped", c->dropped},     {"unavailable", c->unavailable},
		{"requeued", c->requeued},   {"persisted", c->persisted},
		{"early", c->early},	     {"gone", c->gone},
	};

	for (size_t i = 0; i < ARRAY_LEN(outcomes); i++) {
		channel_labels(out, "sutra_deliveries_total", c);
		buf_printf(out, ",outcome=\"%s\"} %llu\n", outcomes[i].name,
			   (unsigned long long)outcomes[i].count);
	}
}

static void channel_metrics(struct admin *admin, struct buf *out, struct admin_channel *channels,
			    uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		admin->sources.channel_read(admin->sources.user, i, &channels[i]);
	family(out, "sutra_deliveries_total", "counter", "Deliveries by what became of them.");
	for (uint32_t i = 0; i < count; i++)
		channel_outcomes(out, &channels[i]);
	family(out, "sutra_held_deliveries", "gauge",
	       "Deliveries held in memory, to be tried again.");
	for (uint32_t i = 0; i < count; i++) {
		channel_labels(out, "sutra_held_deliveries", &channels[i]);
		buf_printf(out, "} %llu\n", (unsigned long long)channels[i].held);
	}
	family(out, "sutra_held_oldest_seconds", "gauge", "Age of the oldest held delivery.");
	for (uint32_t i = 0; i < count; i++) {
		channel_labels(out, "sutra_held_oldest_seconds", &channels[i]);
		buf_printf(out, "} %.6f\n", channels[i].oldest_held_seconds);
	}
	family(out, "sutra_kept_messages", "gauge",
	       "Messages that the database keeps for this replica.");
	for (uint32_t i = 0; i < count; i++) {
		channel_labels(out, "sutra_kept_messages", &channels[i]);
		buf_printf(out, "} %llu\n", (unsigned long long)channels[i].kept);
	}
	family(out, "sutra_unsettled_deliveries", "gauge",
	       "Deliveries taken from the broker and not yet settled.");
	for (uint32_t i = 0; i < count; i++) {
		channel_labels(out, "sutra_unsettled_deliveries", &channels[i]);
		buf_printf(out, "} %llu\n", (unsigned long long)channels[i].unsettled);
	}
	family(out, "sutra_channel_consuming", "gauge", "Whether the channel consumes.");
	for (uint32_t i = 0; i < count; i++) {
		channel_labels(out, "sutra_channel_consuming", &channels[i]);
		buf_printf(out, "} %d\n", channels[i].consuming);
	}
	family(out, "sutra_broker_lag", "gauge",
	       "Messages of the channel that wait at the broker.");
	for (uint32_t i = 0; i < count; i++) {
		if (channels[i].lag < 0) /* unknown */
			continue;
		channel_labels(out, "sutra_broker_lag", &channels[i]);
		buf_printf(out, "} %lld\n", (long long)channels[i].lag);
	}
}

/* --- outbox, store, roles --- */

static void outbox_metrics(struct admin *admin, struct buf *out)
{
	struct outbox_stats stats;
	int64_t age_us = 0;

	outbox_stats_read(admin->sources.outbox, &stats);
	if (stats.oldest_us)
		age_us = loop_wall_us(admin->loop) - stats.oldest_us;
	family(out, "sutra_outbox_rows", "gauge",
	       "Outbox rows in the database, of all replicas, by state.");
	sample(out, "sutra_outbox_rows", "state", "waiting", (uint64_t)stats.waiting);
	sample(out, "sutra_outbox_rows", "state", "claimed", (uint64_t)stats.claimed);
	sample(out, "sutra_outbox_rows", "state", "poisoned", (uint64_t)stats.poisoned_rows);
	family(out, "sutra_outbox_oldest_seconds", "gauge", "Age of the oldest outbox row.");
	buf_add_text(out, "sutra_outbox_oldest_seconds ");
	seconds(out, age_us > 0 ? age_us : 0);
	buf_add_byte(out, '\n');
	single(out, "sutra_outbox_window_rows", "gauge",
	       "Outbox rows that this replica has in memory.", stats.rows_in_memory);
	family(out, "sutra_publications_total", "counter",
	       "Messages by what became of sending them.");
	sample(out, "sutra_publications_total", "outcome", "published", stats.published);
	sample(out, "sutra_publications_total", "outcome", "confirmed", stats.confirmed);
	sample(out, "sutra_publications_total", "outcome", "failed", stats.failed);
	sample(out, "sutra_publications_total", "outcome", "unroutable", stats.unroutable);
	sample(out, "sutra_publications_total", "outcome", "poisoned", stats.poisoned);
	family(out, "sutra_publish_seconds", "summary",
	       "From publishing a message to the broker's confirmation.");
	buf_add_text(out, "sutra_publish_seconds_sum ");
	seconds(out, (int64_t)stats.publish_us_total);
	buf_printf(out, "\nsutra_publish_seconds_count %llu\n",
		   (unsigned long long)stats.confirmed);
}

/* Batches of commits are counted by size, the others only as a whole. Releases ride in the batches of claims. */
static void batch_histogram(struct buf *out, const struct store_stats *stats)
{
	static const struct {
		enum store_kind kind;
		const char *name;
	} kinds[] = {{STORE_CLAIM, "claim"},
		     {STORE_RESOLVE, "resolve"},
		     {STORE_COMMIT, "commit"},
		     {STORE_QUERY, "query"},
		     {STORE_PROBE, "probe"}};
	const unsigned last = ARRAY_LEN(stats->batch_histogram) - 1;

	family(out, "sutra_batch_elements", "histogram",
	       "Elements of one batch, by the kind of its requests.");
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		enum store_kind kind = kinds[k].kind;
		uint64_t below = kind == STORE_COMMIT ? 0 : stats->batches[kind];
		uint64_t sum = stats->elements[kind] +
			       (kind == STORE_CLAIM ? stats->elements[STORE_RELEASE] : 0);

		for (unsigned i = 0; kind == STORE_COMMIT && i <= last; i++) {
			below += stats->batch_histogram[i];
			if (i < last)
				buf_printf(out,
					   "sutra_batch_elements_bucket{kind=\"commit\",le=\"%u\"} "
					   "%llu\n",
					   1u << i, (unsigned long long)below);
		}
		buf_printf(out, "sutra_batch_elements_bucket{kind=\"%s\",le=\"+Inf\"} %llu\n",
			   kinds[k].name, (unsigned long long)below);
		buf_printf(out, "sutra_batch_elements_sum{kind=\"%s\"} %llu\n", kinds[k].name,
			   (unsigned long long)sum);
		buf_printf(out, "sutra_batch_elements_count{kind=\"%s\"} %llu\n", kinds[k].name,
			   (unsigned long long)below);
	}
}

static void store_metrics(struct admin *admin, struct buf *out)
{
	struct store_stats stats;

	store_stats_read(admin->sources.store, &stats);
	batch_histogram(out, &stats);
	single(out, "sutra_store_up", "gauge", "Whether the database can be reached.",
	       store_is_up(admin->sources.store, NULL));
	single(out, "sutra_store_transactions_total", "counter", "Transactions that write.",
	       stats.transactions);
	single(out, "sutra_store_segments_total", "counter", "Round trips to the database.",
	       stats.segments);
	single(out, "sutra_store_statements_total", "counter", "Statements run.", stats.statements);
	single(out, "sutra_store_gate_failures_total", "counter",
	       "Batches that a gate took elements out of.", stats.gate_failures);
	single(out, "sutra_store_doubts_total", "counter",
	       "Commits whose outcome had to be found out.", stats.doubts);
	single(out, "sutra_store_quarantined_total", "counter",
	       "Elements that met a lock and were run on their own.", stats.quarantined);
}

static void timer_metrics(struct buf *out, const struct roles_stats *stats)
{
	static const char *const name = "sutra_timer_fires_total";

	family(out, name, "counter", "Timers that this replica, leading them, has let fire, by what became of that.");
	sample(out, name, "outcome", "committed", stats->timers.committed);
	sample(out, name, "outcome", "refused", stats->timers.refused);
	sample(out, name, "outcome", "stale", stats->timers.stale);
	sample(out, name, "outcome", "rejected", stats->timers.rejected);
	sample(out, name, "outcome", "unavailable", stats->timers.unavailable);
	histogram(out, "sutra_timer_lateness_seconds", "From when a timer was due to the commit of its step.", stats->timers.lateness);
}

static void role_metrics(struct admin *admin, struct buf *out)
{
	struct roles_stats stats;

	if (!admin->sources.roles)
		return;
	roles_stats_read(admin->sources.roles, &stats);
	family(out, "sutra_lease_held", "gauge", "Whether this replica leads a role.");
	for (uint32_t i = 0; i < stats.lease_count; i++)
		sample(out, "sutra_lease_held", "role", stats.leases[i].role, stats.leases[i].held);
	single(out, "sutra_claims_swept_total", "counter",
	       "Silent claims that this replica has cleared.", stats.claims_swept);
	single(out, "sutra_instances_purged_total", "counter",
	       "Instances that this replica has removed by age.", stats.instances_purged);
	single(out, "sutra_inbox_purged_total", "counter",
	       "Event ids that this replica has removed by age.", stats.inbox_purged);
	single(out, "sutra_dead_letters_purged_total", "counter",
	       "Dead letters that this replica has removed by age.", stats.dead_letters_purged);
	timer_metrics(out, &stats);
}

void admin_metrics(struct admin_request *request)
{
	struct admin *admin = request->admin;
	uint32_t count = admin->sources.channel_count(admin->sources.user);
	struct admin_channel *channels = arena_alloc(&request->arena,
						     sizeof(*channels) * (count + 1));
	struct buf *out = &request->body;

	family(out, "sutra_build_info", "gauge", "The version that runs.");
	sample(out, "sutra_build_info", "version", admin->sources.version, 1);
	family(out, "sutra_start_time_seconds", "gauge",
	       "When this replica was started, since 1970.");
	buf_add_text(out, "sutra_start_time_seconds ");
	seconds(out, admin->sources.started_us);
	buf_add_byte(out, '\n');
	single(out, "sutra_deployments", "gauge", "Deployments that this replica serves.",
	       admin->view ? admin->view->member_count : 0);
	lane_metrics(admin, out);
	histogram(out, "sutra_step_seconds", "The pure step.", &admin->sources.lanes->step_time);
	histogram(out, "sutra_commit_seconds", "From asking the store for a commit to its answer.",
		  &admin->sources.lanes->commit_time);
	channel_metrics(admin, out, channels, count);
	outbox_metrics(admin, out);
	store_metrics(admin, out);
	role_metrics(admin, out);
	admin_answer(request, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8");
}
