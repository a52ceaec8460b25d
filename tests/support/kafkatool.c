/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kafkatool: what the tests need of a Kafka client and kcat does not give: topics made and
 * deleted, a header list and nulls per record, bytes of any kind, committed offsets and lag as
 * numbers, a produce benchmark.
 *
 * Everything goes over one client handle and ends with an exit code: 0 done, 1 the broker or the
 * deadline said no, 2 the command line is wrong. Results are JSON lines on standard output,
 * complaints go to standard error. Bytes in JSON are text where they are UTF-8 and {"hex":"…"}
 * where they are not. Every wait has the deadline of -t.
 */
#include <getopt.h>
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
	rd_kafka_conf_t *conf;
	int64_t timeout_ms;
	int64_t count; /* records to consume; -1 = to the end of every partition */
	int32_t partition;
	bool hex;
	bool from_stored; /* consume: start at the group's offsets instead of the beginning */
	const char *group;
};

/* The outcome of a produce run, filled by delivery reports on the polling thread. */
struct deliveries {
	int64_t delivered;
	int64_t failed;
	rd_kafka_resp_err_t first_error;
};

struct bytes {
	char *data; /* NULL = null, not empty */
	size_t len;
};

static void die(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

static void die(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("kafkatool: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	exit(code);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Milliseconds left until `deadline`, at least 0. */
static int left_ms(int64_t deadline)
{
	int64_t left = deadline - now_ms();

	return left > 0 ? (int)left : 0;
}

static int64_t number_parse(const char *text, const char *what)
{
	char *end;
	int64_t value = strtoll(text, &end, 10);

	if (end == text || *end)
		die(2, "%s is not a number: %s", what, text);
	return value;
}

static void set(struct options *opt, const char *key, const char *value)
{
	char err[256];

	if (rd_kafka_conf_set(opt->conf, key, value, err, sizeof err) != RD_KAFKA_CONF_OK)
		die(2, "%s", err);
}

static rd_kafka_t *client_new(struct options *opt, rd_kafka_type_t type)
{
	char err[256];
	rd_kafka_t *rk = rd_kafka_new(type, opt->conf, err, sizeof err);

	if (!rk)
		die(2, "%s", err);
	opt->conf = NULL;
	return rk;
}

/* --- JSON out --- */

static bool is_utf8(const unsigned char *p, size_t len)
{
	static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};

	for (size_t i = 0; i < len;) {
		unsigned char c = p[i++];
		int more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
		uint32_t rune = more == 3 ? c & 7 : more == 2 ? c & 15 : more == 1 ? c & 31 : c;

		if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || (size_t)more > len - i)
			return false;
		for (int k = 0; k < more; k++, i++) {
			if ((p[i] & 0xc0) != 0x80)
				return false;
			rune = rune << 6 | (p[i] & 63);
		}
		if (rune < smallest[more] || rune > 0x10ffff || (rune >= 0xd800 && rune < 0xe000))
			return false;
	}
	return true;
}

static void json_put(const void *data, size_t len)
{
	const unsigned char *p = data;

	if (!data) {
		fputs("null", stdout);
		return;
	}
	if (!is_utf8(p, len)) {
		fputs("{\"hex\":\"", stdout);
		for (size_t i = 0; i < len; i++)
			printf("%02x", p[i]);
		fputs("\"}", stdout);
		return;
	}
	putchar('"');
	for (size_t i = 0; i < len; i++) {
		if (p[i] == '"' || p[i] == '\\')
			printf("\\%c", p[i]);
		else if (p[i] < 0x20)
			printf("\\u%04x", p[i]);
		else
			putchar(p[i]);
	}
	putchar('"');
}

static void record_put(const rd_kafka_message_t *msg)
{
	rd_kafka_headers_t *headers;
	const char *topic = rd_kafka_topic_name(msg->rkt);
	const char *name;
	const void *value;
	size_t len;

	fputs("{\"topic\":", stdout);
	json_put(topic, strlen(topic));
	printf(",\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"timestamp\":%" PRId64
	       ",\"key\":",
	       msg->partition, msg->offset, rd_kafka_message_timestamp(msg, NULL));
	json_put(msg->key, msg->key_len);
	fputs(",\"headers\":[", stdout);
	if (rd_kafka_message_headers(msg, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
		for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &len); i++) {
			fputs(i ? ",[" : "[", stdout);
			json_put(name, strlen(name));
			putchar(',');
			json_put(value, len);
			putchar(']');
		}
	}
	fputs("],\"payload\":", stdout);
	json_put(msg->payload, msg->len);
	fputs("}\n", stdout);
}

/* --- topics --- */

/*
 * One admin request: the client, where its result arrives, and options that let it wait until the
 * change has spread.
 */
struct admin {
	rd_kafka_t *rk;
	rd_kafka_queue_t *queue;
	rd_kafka_AdminOptions_t *options;
};

static void admin_init(struct admin *admin, struct options *opt, rd_kafka_admin_op_t op)
{
	int timeout_ms = (int)opt->timeout_ms;
	char err[256];

	admin->rk = client_new(opt, RD_KAFKA_PRODUCER);
	admin->queue = rd_kafka_queue_new(admin->rk);
	admin->options = rd_kafka_AdminOptions_new(admin->rk, op);
	if (rd_kafka_AdminOptions_set_operation_timeout(admin->options, timeout_ms, err,
							sizeof err) ||
	    rd_kafka_AdminOptions_set_request_timeout(admin->options, timeout_ms, err, sizeof err))
		die(2, "%s", err);
}

/*
 * Waits for the result, releases everything, and ends the program if the request about `topic`
 * failed.
 */
static int admin_done(struct admin *admin, const struct options *opt, const char *topic)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(admin->queue, (int)opt->timeout_ms);
	rd_kafka_resp_err_t err = event ? rd_kafka_event_error(event)
					: RD_KAFKA_RESP_ERR__TIMED_OUT;
	const rd_kafka_topic_result_t **results;
	size_t count;

	if (!err) {
		if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_CREATETOPICS_RESULT)
			results = rd_kafka_CreateTopics_result_topics(
				rd_kafka_event_CreateTopics_result(event), &count);
		else
			results = rd_kafka_DeleteTopics_result_topics(
				rd_kafka_event_DeleteTopics_result(event), &count);
		err = count ? rd_kafka_topic_result_error(results[0]) : RD_KAFKA_RESP_ERR__FAIL;
	}
	if (event)
		rd_kafka_event_destroy(event);
	rd_kafka_AdminOptions_destroy(admin->options);
	rd_kafka_queue_destroy(admin->queue);
	rd_kafka_destroy(admin->rk);
	if (err)
		die(1, "%s: %s", topic, rd_kafka_err2str(err));
	return 0;
}

static int topic_create(struct options *opt, int argc, char **argv)
{
	struct admin admin;
	rd_kafka_NewTopic_t *topic;
	char err[256];

	if (argc < 2)
		die(2, "create TOPIC PARTITIONS [NAME=VALUE…]");
	topic = rd_kafka_NewTopic_new(argv[0], (int)number_parse(argv[1], "PARTITIONS"), 1, err,
				      sizeof err);
	if (!topic)
		die(2, "%s", err);
	for (int i = 2; i < argc; i++) {
		char *equals = strchr(argv[i], '=');

		if (!equals)
			die(2, "not NAME=VALUE: %s", argv[i]);
		*equals = '\0';
		rd_kafka_NewTopic_set_config(topic, argv[i], equals + 1);
	}
	admin_init(&admin, opt, RD_KAFKA_ADMIN_OP_CREATETOPICS);
	rd_kafka_CreateTopics(admin.rk, &topic, 1, admin.options, admin.queue);
	rd_kafka_NewTopic_destroy(topic);
	return admin_done(&admin, opt, argv[0]);
}

static int topic_delete(struct options *opt, int argc, char **argv)
{
	struct admin admin;
	rd_kafka_DeleteTopic_t *topic;

	if (argc != 1)
		die(2, "delete TOPIC");
	admin_init(&admin, opt, RD_KAFKA_ADMIN_OP_DELETETOPICS);
	topic = rd_kafka_DeleteTopic_new(argv[0]);
	rd_kafka_DeleteTopics(admin.rk, &topic, 1, admin.options, admin.queue);
	rd_kafka_DeleteTopic_destroy(topic);
	return admin_done(&admin, opt, argv[0]);
}

/* The number of partitions of a topic, asked until the broker knows the topic. */
static int partition_count(rd_kafka_t *rk, const char *name, int64_t deadline)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
	const struct rd_kafka_metadata *metadata;
	rd_kafka_resp_err_t err;
	int count = 0;

	do {
		err = rd_kafka_metadata(rk, 0, topic, &metadata, left_ms(deadline));
		if (!err) {
			err = metadata->topics[0].err;
			count = metadata->topics[0].partition_cnt;
			rd_kafka_metadata_destroy(metadata);
		}
		if (!err && count)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	} while (left_ms(deadline));
	rd_kafka_topic_destroy(topic);
	if (err || !count)
		die(1, "%s: %s", name, rd_kafka_err2str(err));
	return count;
}

/* --- produce --- */

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *msg, void *opaque)
{
	struct deliveries *done = opaque;

	(void)rk;
	if (!msg->err) {
		done->delivered++;
	} else if (!done->failed++) {
		done->first_error = msg->err;
	}
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Reads a field in place: \N is null, and with --hex two digits are a byte. */
static struct bytes field_parse(char *text, const struct options *opt, int64_t line)
{
	struct bytes field = {text, strlen(text)};

	if (!strcmp(text, "\\N"))
		return (struct bytes){NULL, 0};
	if (!opt->hex)
		return field;
	for (size_t i = 0; i < field.len; i += 2) {
		int high = hex_digit(text[i]);
		int low = high < 0 ? -1 : hex_digit(text[i + 1]);

		if (low < 0)
			die(2, "line %" PRId64 ": not hex", line);
		text[i / 2] = (char)(high << 4 | low);
	}
	field.len /= 2;
	return field;
}

/* name=value,name=value: names are text, a name without "=" is a header without a value. */
static rd_kafka_headers_t *headers_parse(char *text, const struct options *opt, int64_t line)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(8);

	for (char *next; text && *text; text = next) {
		char *equals;
		struct bytes value = {NULL, 0};

		next = strchr(text, ',');
		if (next)
			*next++ = '\0';
		equals = strchr(text, '=');
		if (equals) {
			*equals = '\0';
			value = field_parse(equals + 1, opt, line);
		}
		rd_kafka_header_add(headers, text, -1, value.data, (ssize_t)value.len);
	}
	return headers;
}

/*
 * Hands one record to librdkafka, polling while its queue is full. Takes the headers; NULL is
 * none.
 */
static void produce_one(rd_kafka_t *rk, const char *topic, int32_t partition, struct bytes key,
			rd_kafka_headers_t *headers, struct bytes payload)
{
	for (;;) {
		rd_kafka_resp_err_t err = rd_kafka_producev(
			rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
			RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key.data, key.len),
			RD_KAFKA_V_VALUE(payload.data, payload.len), RD_KAFKA_V_HEADERS(headers),
			RD_KAFKA_V_END);

		if (!err)
			return;
		if (err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
			die(1, "produce: %s", rd_kafka_err2str(err));
		rd_kafka_poll(rk, 100);
	}
}

/* Waits for every delivery report. Returns the exit code. */
static int produce_end(rd_kafka_t *rk, const struct options *opt, const struct deliveries *done)
{
	rd_kafka_resp_err_t err = rd_kafka_flush(rk, (int)opt->timeout_ms);

	if (done->failed)
		fprintf(stderr, "kafkatool: %" PRId64 " records failed, the first: %s\n",
			done->failed, rd_kafka_err2str(done->first_error));
	else if (err)
		fprintf(stderr, "kafkatool: flush: %s\n", rd_kafka_err2str(err));
	return err || done->failed;
}

static int produce(struct options *opt, int argc, char **argv)
{
	struct deliveries done = {0};
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	int64_t line = 0;
	rd_kafka_t *rk;
	int code;

	if (argc != 1)
		die(2, "produce TOPIC < LINES");
	rd_kafka_conf_set_dr_msg_cb(opt->conf, delivered);
	rd_kafka_conf_set_opaque(opt->conf, &done);
	rk = client_new(opt, RD_KAFKA_PRODUCER);
	while ((len = getline(&text, &room, stdin)) >= 0) {
		char *headers, *payload;

		line++;
		if (len && text[len - 1] == '\n')
			text[len - 1] = '\0';
		headers = strchr(text, '\t');
		payload = headers ? strchr(headers + 1, '\t') : NULL;
		if (!payload)
			die(2, "line %" PRId64 ": not key<TAB>headers<TAB>payload", line);
		*headers++ = *payload++ = '\0';
		produce_one(rk, argv[0], opt->partition, field_parse(text, opt, line),
			    headers_parse(headers, opt, line), field_parse(payload, opt, line));
		rd_kafka_poll(rk, 0);
	}
	free(text);
	code = produce_end(rk, opt, &done);
	printf("{\"delivered\":%" PRId64 ",\"failed\":%" PRId64 "}\n", done.delivered, done.failed);
	rd_kafka_destroy(rk);
	return code;
}

static int produce_bench(struct options *opt, int argc, char **argv)
{
	struct deliveries done = {0};
	int64_t count, size, keys, start, took;
	rd_kafka_t *rk;
	char *payload;
	int code;

	if (argc != 4)
		die(2, "produce-bench TOPIC N SIZE KEYS");
	count = number_parse(argv[1], "N");
	size = number_parse(argv[2], "SIZE");
	keys = number_parse(argv[3], "KEYS");
	if (keys < 1 || size < 0)
		die(2, "KEYS is at least 1, SIZE at least 0");
	set(opt, "enable.idempotence", "true");
	rd_kafka_conf_set_dr_msg_cb(opt->conf, delivered);
	rd_kafka_conf_set_opaque(opt->conf, &done);
	rk = client_new(opt, RD_KAFKA_PRODUCER);
	partition_count(rk, argv[0], now_ms() + opt->timeout_ms);
	payload = malloc((size_t)size + 1);
	if (!payload)
		die(1, "no memory for %" PRId64 " bytes", size);
	memset(payload, 'x', (size_t)size);
	start = now_ms();
	for (int64_t i = 0; i < count; i++) {
		char key[32];
		int len = snprintf(key, sizeof key, "k%" PRId64, i % keys);

		produce_one(rk, argv[0], opt->partition, (struct bytes){key, (size_t)len}, NULL,
			    (struct bytes){payload, (size_t)size});
		if (i % 1000 == 0)
			rd_kafka_poll(rk, 0);
	}
	code = produce_end(rk, opt, &done);
	took = now_ms() - start;
	printf("{\"delivered\":%" PRId64 ",\"failed\":%" PRId64 ",\"milliseconds\":%" PRId64
	       ",\"per_second\":%" PRId64 "}\n",
	       done.delivered, done.failed, took, done.delivered * 1000 / (took ? took : 1));
	free(payload);
	rd_kafka_destroy(rk);
	return code;
}

/* --- consume --- */

/* One entry a partition: all of the topic, or the one of -p. */
static rd_kafka_topic_partition_list_t *partitions_of(rd_kafka_t *rk, const struct options *opt,
						      const char *topic, int64_t deadline)
{
	int count = partition_count(rk, topic, deadline);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);

	for (int32_t i = 0; i < count; i++) {
		if (opt->partition == RD_KAFKA_PARTITION_UA || opt->partition == i)
			rd_kafka_topic_partition_list_add(list, topic, i);
	}
	if (!list->cnt)
		die(2, "%s has %d partitions", topic, count);
	return list;
}

/*
 * Reads until `count` records came, or with count < 0 until the end of each partition was seen
 * once. Partitions are assigned, not subscribed: the tool disturbs no group, whatever group it
 * reads offsets of.
 */
static int consume(struct options *opt, int argc, char **argv)
{
	int64_t deadline = now_ms() + opt->timeout_ms;
	int64_t seen = 0;
	rd_kafka_topic_partition_list_t *list;
	rd_kafka_resp_err_t err;
	rd_kafka_t *rk;
	int open;

	if (argc != 1)
		die(2, "consume TOPIC");
	set(opt, "group.id", opt->group ? opt->group : "kafkatool");
	set(opt, "enable.auto.commit", "false");
	set(opt, "enable.partition.eof", "true");
	set(opt, "auto.offset.reset", "earliest");
	rk = client_new(opt, RD_KAFKA_CONSUMER);
	rd_kafka_poll_set_consumer(rk);
	list = partitions_of(rk, opt, argv[0], deadline);
	open = list->cnt;
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = opt->from_stored ? RD_KAFKA_OFFSET_STORED
							 : RD_KAFKA_OFFSET_BEGINNING;
	err = rd_kafka_assign(rk, list);
	if (err)
		die(1, "assign: %s", rd_kafka_err2str(err));
	while ((opt->count < 0 ? open > 0 : seen < opt->count) && left_ms(deadline)) {
		rd_kafka_message_t *msg = rd_kafka_consumer_poll(rk, left_ms(deadline));

		if (!msg)
			break;
		if (!msg->err) {
			record_put(msg);
			seen++;
		} else if (msg->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
			open--;
		} else {
			fprintf(stderr, "kafkatool: %s\n", rd_kafka_message_errstr(msg));
		}
		rd_kafka_message_destroy(msg);
	}
	rd_kafka_topic_partition_list_destroy(list);
	rd_kafka_consumer_close(rk);
	rd_kafka_destroy(rk);
	fflush(stdout);
	if (opt->count < 0 ? open > 0 : seen < opt->count)
		die(1, "%" PRId64 " records when the time was up", seen);
	return 0;
}

/* --- offsets --- */

/*
 * The group's committed offsets. librdkafka hands NOT_COORDINATOR and its like to the caller, and
 * a broker that was just restarted answers so for a moment: asked again until the deadline.
 */
static void committed_get(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int64_t deadline)
{
	for (;;) {
		rd_kafka_resp_err_t err = rd_kafka_committed(rk, list, left_ms(deadline));

		for (int i = 0; !err && i < list->cnt; i++)
			err = list->elems[i].err;
		if (!err)
			return;
		if (!left_ms(deadline))
			die(1, "committed offsets: %s", rd_kafka_err2str(err));
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
}

static void watermarks_get(rd_kafka_t *rk, const rd_kafka_topic_partition_t *at, int64_t deadline,
			   int64_t *low, int64_t *high)
{
	for (;;) {
		rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(
			rk, at->topic, at->partition, low, high, left_ms(deadline));

		if (!err)
			return;
		if (!left_ms(deadline))
			die(1, "watermarks: %s", rd_kafka_err2str(err));
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
}

/*
 * One line a partition; `committed` is null where the group never committed, and lag then counts
 * from the low mark.
 */
static int offsets(struct options *opt, int argc, char **argv)
{
	int64_t deadline = now_ms() + opt->timeout_ms;
	rd_kafka_topic_partition_list_t *list;
	rd_kafka_t *rk;

	if (argc != 1)
		die(2, "offsets TOPIC [-g GROUP]");
	set(opt, "group.id", opt->group ? opt->group : "kafkatool");
	rk = client_new(opt, RD_KAFKA_CONSUMER);
	list = partitions_of(rk, opt, argv[0], deadline);
	if (opt->group)
		committed_get(rk, list, deadline);
	for (int i = 0; i < list->cnt; i++) {
		const rd_kafka_topic_partition_t *at = &list->elems[i];
		int64_t low, high;

		watermarks_get(rk, at, deadline, &low, &high);
		printf("{\"partition\":%" PRId32 ",\"low\":%" PRId64 ",\"high\":%" PRId64,
		       at->partition, low, high);
		if (opt->group && at->offset >= 0)
			printf(",\"committed\":%" PRId64 ",\"lag\":%" PRId64 "}\n", at->offset,
			       high - at->offset);
		else
			printf(",\"committed\":null,\"lag\":%" PRId64 "}\n", high - low);
	}
	rd_kafka_topic_partition_list_destroy(list);
	rd_kafka_destroy(rk);
	return 0;
}

static const struct command {
	const char *name;
	int (*run)(struct options *opt, int argc, char **argv);
	const char *help;
} commands[] = {
	{"create", topic_create, "TOPIC PARTITIONS [NAME=VALUE…]   make a topic with its settings"},
	{"delete", topic_delete, "TOPIC                            delete a topic"},
	{"produce", produce,
	 "TOPIC                           from lines key<TAB>name=value,…<TAB>payload"},
	{"produce-bench", produce_bench,
	 "TOPIC N SIZE KEYS         N idempotent records over KEYS keys"},
	{"consume", consume, "TOPIC                           records as JSON lines"},
	{"offsets", offsets,
	 "TOPIC                           watermarks, and of group -g offsets and lag"},
};

static void usage(void)
{
	fputs("usage: kafkatool -b HOST:PORT [options] COMMAND …\n", stderr);
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		fprintf(stderr, "  %s %s\n", commands[i].name, commands[i].help);
	fputs("options:\n"
	      "  -X NAME=VALUE   a librdkafka property\n"
	      "  -r MS           reconnect.backoff.max.ms (500)\n"
	      "  -t MS           deadline of the whole command (30000)\n"
	      "  -g GROUP        group whose offsets are meant\n"
	      "  -s              consume: from the group's committed offsets, not from the "
	      "beginning\n"
	      "  -n N            consume: N records; without it to the end of every partition\n"
	      "  -p P            one partition only\n"
	      "  -x              produce: keys, header values and payloads are hex\n"
	      "In produce lines \\N is null, and a header without \"=\" has no value.\n",
	      stderr);
	exit(2);
}

static void property_set(struct options *opt, char *text)
{
	char *equals = strchr(text, '=');

	if (!equals)
		die(2, "not NAME=VALUE: %s", text);
	*equals = '\0';
	set(opt, text, equals + 1);
}

int main(int argc, char **argv)
{
	struct options opt = {.timeout_ms = 30000, .count = -1, .partition = RD_KAFKA_PARTITION_UA};
	int c;

	opt.conf = rd_kafka_conf_new();
	set(&opt, "reconnect.backoff.max.ms", "500");
	while ((c = getopt(argc, argv, "+b:X:r:t:g:sn:p:x")) != -1) {
		switch (c) {
		case 'b':
			set(&opt, "bootstrap.servers", optarg);
			break;
		case 'X':
			property_set(&opt, optarg);
			break;
		case 'r':
			set(&opt, "reconnect.backoff.max.ms", optarg);
			break;
		case 't':
			opt.timeout_ms = number_parse(optarg, "-t");
			break;
		case 'g':
			opt.group = optarg;
			break;
		case 's':
			opt.from_stored = true;
			break;
		case 'n':
			opt.count = number_parse(optarg, "-n");
			break;
		case 'p':
			opt.partition = (int32_t)number_parse(optarg, "-p");
			break;
		case 'x':
			opt.hex = true;
			break;
		default:
			usage();
		}
	}
	if (optind == argc)
		usage();
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (!strcmp(argv[optind], commands[i].name))
			return commands[i].run(&opt, argc - optind - 1, argv + optind + 1);
	}
	usage();
}
