/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of a package that need all of it: channels that name channels, processes that name channels, and who handles which
 * message. The same rules between packages are view.c's.
 */
#include "model/build.h"

static const struct channel *find(const struct build *build, struct str name)
{
	return name.ptr ? deployment_channel(build->deployment, name) : NULL;
}

/* A channel that another names for its dead letters or replies. */
static void check_outbound_name(struct build *build, const struct channel *channel, const char *key,
				struct str name)
{
	const struct channel *named = find(build, name);

	if (!name.ptr || (named && named->direction == CHANNEL_OUTBOUND))
		return;
	finding_add(build->findings, channel->file, channel->line, channel->name,
		    CODE_CONFIG_CHANNEL_INVALID,
		    named ? "%s names \"%.*s\", which is an inbound channel"
			  : "%s names \"%.*s\", which is no channel of the package",
		    key, STR_ARG(name));
}

static void check_channel(struct build *build, uint32_t index)
{
	const struct channel *channel = build->deployment->channels[index];
	const struct channel *target;

	check_outbound_name(build, channel, "dead-letter", channel->dead_letter);
	check_outbound_name(build, channel, "reply-channel", channel->reply_channel);
	for (uint32_t i = 0; i < index; i++)
		if (channel_same_origin(channel, build->deployment->channels[i]))
			finding_add(build->findings, channel->file, channel->line, channel->name,
				    CODE_CONFIG_CHANNEL_CONFLICT,
				    "it consumes the same %s as channel \"%.*s\" in line %d",
				    str_equal(channel->transport, STR("amqp")) ? "queue"
									       : "topic in the same group",
				    STR_ARG(build->deployment->channels[i]->name),
				    build->deployment->channels[i]->line);
	if (channel->direction != CHANNEL_OUTBOUND || !str_equal(channel->transport, STR("local")))
		return;
	target = find(build, channel->bind);
	if (target &&
	    (target->direction != CHANNEL_INBOUND || !str_equal(target->transport, STR("local"))))
		finding_add(build->findings, channel->file, channel->line, channel->name,
			    CODE_CONFIG_CHANNEL_INVALID,
			    "bind names \"%.*s\", which is no inbound local channel",
			    STR_ARG(channel->bind));
	else if (!target && channel->bind.ptr)
		finding_add(build->findings, channel->file, channel->line, channel->name,
			    CODE_CONFIG_CHANNEL_SUSPICIOUS,
			    "bind names \"%.*s\", which is no channel of this package; another "
			    "module of "
			    "the tenant must have it",
			    STR_ARG(channel->bind));
}

/* A channel that a process names; NULL after a finding. */
static const struct channel *named_by_node(struct build *build, const struct node *node, int line,
					   const char *what, struct str name,
					   enum channel_direction direction)
{
	const struct channel *channel = find(build, name);

	if (!name.ptr)
		return NULL; /* reported as missing */
	if (channel && channel->direction == direction)
		return channel;
	finding_add(build->findings, node->process->file, line, node->id, CODE_CONFIG_BPMN_INVALID,
		    !channel ? "%s names channel \"%.*s\", which channels.conf does not declare"
		    : direction == CHANNEL_INBOUND ? "%s names channel \"%.*s\", which is outbound"
						   : "%s names channel \"%.*s\", which is inbound",
		    what, STR_ARG(name));
	return NULL;
}

/*
 * A reply without a channel of its own is coded by the reply-channel of whatever channel started the instance, so each that
 * can start it needs one.
 */
static void check_reply(struct build *build, const struct node *node)
{
	const struct process *process = node->process;

	if (node->reply->channel.ptr) {
		if (!named_by_node(build, node, node->line, "q:reply", node->reply->channel,
				   CHANNEL_OUTBOUND))
			return;
		return;
	}
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *start = process->nodes[i];
		const struct channel *channel;

		if (start->kind == NODE_START_TIMER)
			finding_add(
				build->findings, process->file, node->line, node->id,
				CODE_CONFIG_BPMN_INVALID,
				"q:reply names no channel, and the timer \"%.*s\", which starts the "
				"process, has nobody to answer",
				STR_ARG(start->id));
		if (start->kind != NODE_START || !start->source)
			continue;
		channel = find(build, start->source->channel);
		if (channel && !channel->reply_channel.ptr)
			finding_add(
				build->findings, process->file, node->line, node->id,
				CODE_CONFIG_BPMN_INVALID,
				"q:reply names no channel, and channel \"%.*s\", which starts the "
				"process, declares no reply-channel",
				STR_ARG(channel->name));
	}
}

static void check_node(struct build *build, const struct node *node)
{
	if (node->source)
		named_by_node(build, node, node->source->line, "q:source", node->source->channel,
			      CHANNEL_INBOUND);
	if (node->send)
		named_by_node(build, node, node->line,
			      node->kind == NODE_SERVICE ? "implementation" : "q:send",
			      node->send->channel, CHANNEL_OUTBOUND);
	if (node->reply)
		check_reply(build, node);
}

static bool is_broadcast(const struct build *build, struct str name)
{
	const struct channel *channel = find(build, name);

	return channel && channel->broadcast;
}

/*
 * One handler for each channel and message type: no two processes may both take one. Inside a process several waits may,
 * their aliases tell them apart, and a start beside them takes what no wait is there for; but two starts may not. On a channel
 * that broadcasts every process has the message.
 */
static void check_pair(struct build *build, const struct node *a, const struct node *b)
{
	bool same_process = a->process == b->process;

	if (same_process && (a->kind != NODE_START || b->kind != NODE_START))
		return;
	if (!str_equal(a->source->channel, b->source->channel) ||
	    !source_types_overlap(a->source, b->source))
		return;
	if (!same_process && is_broadcast(build, a->source->channel))
		return;
	finding_add(
		build->findings, b->process->file, b->source->line, b->id,
		CODE_INBOUND_AMBIGUOUS_HANDLER,
		"a message on channel \"%.*s\" could be for this one and for %.*s in %s line %d",
		STR_ARG(b->source->channel), STR_ARG(a->id), a->process->file, a->source->line);
}

static void check_handlers(struct build *build)
{
	const struct deployment *deployment = build->deployment;
	const struct node **nodes = NULL;
	uint32_t count = 0, patterns = 0;
	struct arena arena;

	arena_init(&arena);
	for (uint32_t i = 0; i < deployment->process_count; i++) {
		const struct process *process = deployment->processes[i];

		for (uint32_t j = 0; j < process->node_count; j++) {
			if (!process->nodes[j]->source || !process->nodes[j]->source->channel.ptr)
				continue;
			nodes = build_grow(&arena, nodes, count, sizeof(nodes[0]));
			nodes[count++] = process->nodes[j];
			patterns += process->nodes[j]->source->type_pattern.ptr != NULL;
		}
	}
	if (count > BUILD_SOURCES_MAX || patterns > BUILD_PATTERNS_MAX) {
		finding_add(
			build->findings, NULL, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
			"a package holds at most %d starts and waits, %d of them with a pattern",
			BUILD_SOURCES_MAX, BUILD_PATTERNS_MAX);
		count = 0;
	}
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < i; j++)
			check_pair(build, nodes[j], nodes[i]);
	arena_done(&arena);
}

/* Whether a start of the process is on a channel whose replies go to `channel`. */
static bool replies_by(const struct build *build, const struct process *process, struct str channel)
{
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *start = process->nodes[i];
		const struct channel *from;

		if (start->kind != NODE_START || !start->source)
			continue;
		from = find(build, start->source->channel);
		if (from && str_equal(from->reply_channel, channel))
			return true;
	}
	return false;
}

static bool sends_to(const struct build *build, const struct process *process, struct str channel)
{
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		if (node->send && str_equal(node->send->channel, channel))
			return true;
		if (node->reply &&
		    (node->reply->channel.ptr ? str_equal(node->reply->channel, channel)
					      : replies_by(build, process, channel)))
			return true;
	}
	return false;
}

/*
 * A record key is evaluated in the instance that sends, so its names are those of each process that does. With no sender it
 * is held against a process without variables: it must compile in any case.
 */
static void check_keys(struct build *build)
{
	static const struct process nobody = {.id = {"(none)", 6}};
	const struct deployment *deployment = build->deployment;

	for (uint32_t i = 0; i < deployment->channel_count; i++) {
		const struct channel *channel = deployment->channels[i];
		bool sent = false, clean = true;

		if (!channel->key)
			continue;
		for (uint32_t j = 0; j < deployment->process_count && clean; j++) {
			if (!sends_to(build, deployment->processes[j], channel->name))
				continue;
			sent = true;
			clean = bpmn_check_key(build, deployment->processes[j], channel);
		}
		if (!sent)
			clean = bpmn_check_key(build, &nobody, channel);
	}
}

void channel_check(struct build *build)
{
	const struct deployment *deployment = build->deployment;

	for (uint32_t i = 0; i < deployment->channel_count; i++)
		check_channel(build, i);
	for (uint32_t i = 0; i < deployment->process_count && !build->channels_unread; i++)
		for (uint32_t j = 0; j < deployment->processes[i]->node_count; j++)
			check_node(build, deployment->processes[i]->nodes[j]);
	check_handlers(build);
	check_keys(build);
}
