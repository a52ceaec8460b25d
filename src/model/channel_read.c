/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channels.conf: reads `channels = ( { … }, … );` into the deployment.
 *
 * Keys fall into three lots: those that are read here, those that belong to the other direction (said so), and
 * those that a later version will run: they may stand there with their default value and are refused with any other, so
 * that a channel never runs with less than it asks for.
 */
#include "config/document.h"
#include "model/build.h"

#define DAY_MS INT64_C(86400000)

struct reader {
	struct document_sink sink;
	struct build *build;
	const char *file;
	struct str at; /* the channel that findings name */
};

static void on_finding(struct document_sink *sink, const char *file UNUSED, unsigned line,
		       enum code code, const char *text)
{
	struct reader *reader = container_of(sink, struct reader, sink);

	finding_add(reader->build->findings, reader->file, (int)line, reader->at, code, "%s", text);
}

static const char *const keys[] = {
	"name",
	"direction",
	"transport",
	"connection",
	"bind",
	"group",
	"key",
	"codec",
	"cloudevents-mode",
	"ack-mode",
	"singleton",
	"max-in-flight",
	"idempotency-key-header",
	"payload-cap-bytes",
	"broadcast",
	"max-concurrent-instances",
	"use-only-in-flight-for-concurrency-cap",
	"pool",
	"pool-call-key",
	"session-end",
	"busy",
	"refused",
	"unmatched",
	"dead-letter",
	"reply-channel",
	"lock-duration",
	"retries",
	"retry-timeout",
	"result-channel",
	NULL,
};

static const char *const inbound_keys[] = {
	"group",
	"max-in-flight",
	"idempotency-key-header",
	"payload-cap-bytes",
	"unmatched",
	"dead-letter",
	"reply-channel",
	"ack-mode",
	"singleton",
	"broadcast",
	"busy",
	"refused",
};

static const char *const outbound_keys[] = {"key"};

/* Keys that no value makes supported yet. */
static const char *const later_keys[] = {
	"max-concurrent-instances",
	"use-only-in-flight-for-concurrency-cap",
	"pool",
	"pool-call-key",
	"session-end",
	"lock-duration",
	"retries",
	"retry-timeout",
	"result-channel",
};

static void refuse_later(const struct config_setting_t *group)
{
	static const struct {
		const char *key;
		const char *choices[4]; /* the default first; none: a boolean, false */
	} only_default[] = {
		{"ack-mode", {"on-commit", "on-persist", "on-complete", NULL}},
		{"busy", {"requeue", "reject", NULL}},
		{"singleton", {NULL}},
	};

	for (size_t i = 0; i < ARRAY_LEN(only_default); i++) {
		const char *key = only_default[i].key;
		bool flag = false;
		int choice = 0;

		if (!only_default[i].choices[0])
			document_bool(group, key, false, &flag);
		else
			document_choice(group, key, false, only_default[i].choices, &choice);
		if (flag)
			document_finding_code(document_find(group, key),
					      CODE_CONFIG_CHANNEL_UNSUPPORTED,
					      "%s = true is not supported yet", key);
		if (choice)
			document_finding_code(
				document_find(group, key), CODE_CONFIG_CHANNEL_UNSUPPORTED,
				"%s = \"%s\" is not supported yet, only \"%s\"", key,
				only_default[i].choices[choice], only_default[i].choices[0]);
	}
	for (size_t i = 0; i < ARRAY_LEN(later_keys); i++) {
		const struct config_setting_t *setting = document_find(group, later_keys[i]);

		if (setting)
			document_finding_code(setting, CODE_CONFIG_CHANNEL_UNSUPPORTED,
					      "%s is not supported yet", later_keys[i]);
	}
}

static void refuse_other_direction(const struct config_setting_t *group,
				   enum channel_direction direction)
{
	bool inbound = direction == CHANNEL_INBOUND;
	const char *const *list = inbound ? outbound_keys : inbound_keys;
	size_t count = inbound ? ARRAY_LEN(outbound_keys) : ARRAY_LEN(inbound_keys);

	for (size_t i = 0; i < count; i++) {
		const struct config_setting_t *setting = document_find(group, list[i]);

		if (setting)
			document_finding(setting, "%s has no meaning for an %s channel", list[i],
					 inbound ? "inbound" : "outbound");
	}
}

static struct str read_text(struct reader *reader, const struct config_setting_t *group,
			    const char *key, bool required)
{
	const char *text = NULL;

	if (!document_text(group, key, required, &text))
		return STR_NONE;
	if (!*text || strlen(text) > 255) {
		document_finding(document_find(group, key), "%s %s", key,
				 *text ? "is longer than 255 bytes" : "is empty");
		return STR_NONE;
	}
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p >= 0x20 && *p != 0x7f)
			continue;
		document_finding(document_find(group, key), "%s holds a control character", key);
		return STR_NONE;
	}
	return build_str(reader->build, str_of(text));
}

static struct str read_name(struct reader *reader, const struct config_setting_t *group)
{
	struct str name = read_text(reader, group, "name", true);

	if (name.ptr && !build_is_channel_name(name)) {
		document_finding(
			document_find(group, "name"),
			"\"%.*s\" cannot name a channel: letters, digits and . _ -, a letter "
			"or digit first, at most %d bytes",
			STR_ARG(name), BUILD_NAME_MAX);
		return STR_NONE;
	}
	return name;
}

static void read_transport(struct reader *reader, const struct config_setting_t *group,
			   struct channel *channel)
{
	static const char *const known[] = {"kafka", "local", "amqp", "pull", NULL};
	int choice = -1;

	channel->transport = STR("kafka"); /* so that reading can go on */
	if (!document_choice(group, "transport", true, known, &choice))
		return;
	channel->transport = str_of(known[choice]);
	if (choice > 2)
		document_finding_code(document_find(group, "transport"),
				      CODE_CONFIG_CHANNEL_UNSUPPORTED,
				      "transport = \"%s\" is not supported yet", known[choice]);
	channel->connection = read_text(reader, group, "connection", false);
	if (!channel->connection.ptr)
		channel->connection = channel->transport;
}

static void check_topic(const struct config_setting_t *group, struct str topic)
{
	bool good = topic.len <= 249 && !str_equal(topic, STR(".")) && !str_equal(topic, STR(".."));

	for (size_t i = 0; i < topic.len && good; i++) {
		char c = topic.ptr[i];

		good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		       c == '.' || c == '_' || c == '-';
	}
	if (!good)
		document_finding(
			document_find(group, "bind"),
			"\"%.*s\" is no Kafka topic: letters, digits and . _ -, at most 249",
			STR_ARG(topic));
}

/* exchange/routing-key, split at the first slash. A queue is any name, slashes and all. */
static void check_routing(const struct config_setting_t *group, struct str bind)
{
	ptrdiff_t slash = str_find(bind, '/');

	if ((size_t)(slash + 1) == bind.len && slash <= 0)
		document_finding(document_find(group, "bind"),
				 "\"%.*s\" names neither an exchange nor a queue: it is exchange/routing-key",
				 STR_ARG(bind));
}

static void read_group(struct reader *reader, const struct config_setting_t *group, struct channel *channel)
{
	bool kafka = str_equal(channel->transport, STR("kafka"));
	bool inbound = channel->direction == CHANNEL_INBOUND;

	channel->group = inbound ? read_text(reader, group, "group", false) : STR_NONE;
	if (channel->group.ptr && !kafka)
		document_finding(document_find(group, "group"), str_equal(channel->transport, STR("local"))
					 ? "a local channel has no group"
					 : "an amqp channel has no group");
	if (inbound && kafka && !channel->group.ptr && channel->name.ptr)
		channel->group = str_of(arena_printf(reader->build->arena, "sutra.%.*s.%.*s",
						     STR_ARG(reader->build->deployment->tenant),
						     STR_ARG(channel->name)));
}

static void read_bind(struct reader *reader, const struct config_setting_t *group,
		      struct channel *channel)
{
	bool local = str_equal(channel->transport, STR("local"));
	bool inbound = channel->direction == CHANNEL_INBOUND;

	channel->bind = read_text(reader, group, "bind", !(local && inbound));
	if (str_equal(channel->transport, STR("kafka")) && channel->bind.ptr)
		check_topic(group, channel->bind);
	if (str_equal(channel->transport, STR("amqp")) && channel->bind.ptr && !inbound)
		check_routing(group, channel->bind);
	if (local && inbound) {
		if (channel->bind.ptr && !str_equal(channel->bind, channel->name))
			document_finding(
				document_find(group, "bind"),
				"an inbound local channel is reached by its own name; leave "
				"bind out");
		channel->bind = channel->name;
	}
	read_group(reader, group, channel);
}

static void read_key(struct reader *reader, const struct config_setting_t *group,
		     struct channel *channel)
{
	const struct config_setting_t *setting = document_find(group, "key");
	const char *text = NULL;

	if (channel->direction == CHANNEL_INBOUND || !document_text(group, "key", false, &text))
		return;
	if (!*text)
		document_finding(setting, "key is empty");
	else if (!str_equal(channel->transport, STR("kafka")))
		document_finding(setting, str_equal(channel->transport, STR("local"))
						  ? "a local channel has no key"
						  : "an amqp channel has no key");
	else
		channel->key = build_expression(reader->build, EXPRESSION_VALUE, str_of(text),
						reader->file, (int)document_line(setting, NULL),
						channel->name);
}

static void read_unmatched(const struct config_setting_t *group, struct channel *channel)
{
	static const char *const then[] = {"dead-letter", "drop", NULL};
	const struct config_setting_t *unmatched;
	int choice = 0;

	channel->unmatched_hold_ms = -1;
	channel->unmatched_then = CHANNEL_UNMATCHED_DEAD_LETTER;
	if (!document_group(group, "unmatched", false, &unmatched))
		return;
	document_check_keys(unmatched, (const char *const[]){"hold", "then", NULL});
	document_duration_ms(unmatched, "hold", false, 0, 365 * DAY_MS,
			     &channel->unmatched_hold_ms);
	document_choice(unmatched, "then", false, then, &choice);
	if (choice == 1)
		channel->unmatched_then = CHANNEL_UNMATCHED_DROP;
}

static void read_refused(const struct config_setting_t *group, struct channel *channel)
{
	static const char *const choices[] = {"hold", "requeue", NULL};
	int choice = 0;

	document_choice(group, "refused", false, choices, &choice);
	channel->requeues = choice == 1;
	if (channel->requeues && !str_equal(channel->transport, STR("amqp")))
		document_finding(document_find(group, "refused"),
				 "only an amqp channel can be refused = \"requeue\": no other broker takes a single message back");
}

static void read_format(struct reader *reader, const struct config_setting_t *group,
			struct channel *channel)
{
	static const char *const codecs[] = {"json", "msgpack", "text", "bytes", NULL};
	static const char *const modes[] = {"auto", "none", "binary", "structured", NULL};
	static const enum channel_cloudevents values[] = {CHANNEL_CE_AUTO, CHANNEL_CE_NONE,
							  CHANNEL_CE_BINARY, CHANNEL_CE_STRUCTURED};
	int codec = 0, mode = 0;
	int64_t in_flight = 256, cap = 0;

	document_choice(group, "codec", false, codecs, &codec);
	channel->codec = str_of(codecs[codec]);
	document_choice(group, "cloudevents-mode", false, modes, &mode);
	channel->cloudevents = values[mode];
	document_int(group, "max-in-flight", false, 1, 1000000, &in_flight);
	channel->max_in_flight = (uint32_t)in_flight;
	document_int(group, "payload-cap-bytes", false, 1, INT64_C(1) << 30, &cap);
	channel->payload_cap_bytes = (uint64_t)cap;
	channel->idempotency_key_header = read_text(reader, group, "idempotency-key-header", false);
}

static void read_channel(struct reader *reader, const struct config_setting_t *group)
{
	static const char *const directions[] = {"inbound", "outbound", NULL};
	struct deployment *deployment = reader->build->deployment;
	struct arena *arena = reader->build->arena;
	struct channel *channel = arena_zalloc(arena, sizeof(*channel));
	const struct channel *before;
	int direction = 0;

	channel->file = reader->file;
	channel->line = (int)document_line(group, NULL);
	channel->name = read_name(reader, group);
	reader->at = channel->name;
	document_check_keys(group, keys);
	document_choice(group, "direction", false, directions, &direction);
	channel->direction = direction ? CHANNEL_OUTBOUND : CHANNEL_INBOUND;
	read_transport(reader, group, channel);
	read_bind(reader, group, channel);
	read_key(reader, group, channel);
	read_format(reader, group, channel);
	read_unmatched(group, channel);
	read_refused(group, channel);
	document_bool(group, "broadcast", false, &channel->broadcast);
	channel->dead_letter = read_text(reader, group, "dead-letter", false);
	channel->reply_channel = read_text(reader, group, "reply-channel", false);
	refuse_other_direction(group, channel->direction);
	refuse_later(group);

	before = channel->name.ptr ? deployment_channel(deployment, channel->name) : NULL;
	if (before)
		document_finding(group, "the name is used twice, first in line %d", before->line);
	if (deployment->channel_count == BUILD_CHANNELS_MAX)
		document_finding(group, "a package holds at most %d channels", BUILD_CHANNELS_MAX);
	else if (channel->name.ptr && !before) {
		deployment->channels = build_grow(arena, deployment->channels,
						  deployment->channel_count,
						  sizeof(deployment->channels[0]));
		deployment->channels[deployment->channel_count++] = channel;
	}
	reader->at = STR_NONE;
}

void channel_read(struct build *build, const char *file, struct str text)
{
	struct reader reader = {.sink = {.add = on_finding}, .build = build, .file = file};
	const struct document_options options = {
		.sink = &reader.sink,
		.code = CODE_CONFIG_CHANNEL_INVALID,
	};
	const struct config_setting_t *root, *channels;
	struct document *doc = NULL;

	build->channels_unread = true;
	if (document_parse(file, text, &options, &doc) != RESULT_OK)
		return;
	root = document_root(doc);
	document_check_keys(root, (const char *const[]){"channels", NULL});
	if (document_groups(root, "channels", true, &channels)) {
		build->channels_unread = false;
		for (size_t i = 0; i < document_count(channels); i++)
			if (document_is_group(document_at(channels, i)))
				read_channel(&reader, document_at(channels, i));
	}
	document_close(&doc);
}
