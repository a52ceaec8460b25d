/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts of the AMQP transport: tables, frames, tags, destinations, properties, the watchdog. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/thread.h"
#include "tests/support/testing.h"
#include "transports/amqp/amqp.h"
#include "transports/amqp/frames.h"
#include "transports/amqp/table.h"
#include "transports/amqp/tags.h"
#include "transports/amqp/watchdog.h"

/* --- tables --- */

static amqp_table_entry_t entry(const char *name, uint8_t kind)
{
	amqp_table_entry_t e = {.key = amqp_cstring_bytes(name)};

	e.value.kind = kind;
	return e;
}

static const char *shown(struct buf *out, const struct header_list *headers)
{
	buf_reset(out);
	for (size_t i = 0; i < headers->count; i++) {
		buf_printf(out, "%.*s=", STR_ARG(headers->items[i].name));
		value_print(&headers->items[i].value, 200, out);
		buf_add_text(out, ";");
	}
	return out->data;
}

START_TEST(test_table_read)
{
	amqp_table_entry_t inner[] = {entry("k", 'I'), entry("k", 'S'), entry("\xff", 't')};
	amqp_field_value_t items[] = {{.kind = 'b'}, {.kind = 'V'}};
	amqp_table_entry_t e[] = {entry("t", 't'),  entry("b", 'b'),  entry("B", 'B'), entry("s", 's'), entry("u", 'u'),
				  entry("I", 'I'),  entry("i", 'i'),  entry("l", 'l'), entry("L", 'L'), entry("f", 'f'),
				  entry("d", 'd'),  entry("D", 'D'),  entry("S", 'S'), entry("N", 'S'), entry("x", 'x'),
				  entry("T", 'T'),  entry("F", 'F'),  entry("A", 'A'), entry("V", 'V'), entry("?", '?')};
	amqp_table_t table = {ARRAY_LEN(e), e};
	struct arena arena;
	struct buf out = BUF_INIT;
	struct header_list headers;

	e[0].value.value.boolean = 1;
	e[1].value.value.i8 = -1;
	e[2].value.value.u8 = 255;
	e[3].value.value.i16 = -300;
	e[4].value.value.u16 = 65535;
	e[5].value.value.i32 = -70000;
	e[6].value.value.u32 = UINT32_MAX;
	e[7].value.value.i64 = INT64_MIN;
	e[8].value.value.u64 = UINT64_MAX;
	e[9].value.value.f32 = 1.5f;
	e[10].value.value.f64 = 0.1;
	e[11].value.value.decimal = (amqp_decimal_t){2, 5};
	e[12].value.value.bytes = amqp_cstring_bytes("\xc3\xa4");
	e[13].value.value.bytes = amqp_cstring_bytes("\xff");
	e[14].value.value.bytes = amqp_cstring_bytes("ab");
	e[15].value.value.u64 = 1764534000;
	inner[0].value.value.i32 = 1;
	inner[1].value.value.bytes = amqp_cstring_bytes("last");
	e[16].value.value.table = (amqp_table_t){3, inner};
	items[0].value.i8 = 7;
	e[17].value.value.array = (amqp_array_t){2, items};
	arena_init(&arena);
	headers = table_read(&arena, &table);
	ck_assert_str_eq(shown(&out, &headers),
			 "t=true;b=-1;B=255;s=-300;u=65535;I=-70000;i=4294967295;l=-9223372036854775808;"
			 "L=\"18446744073709551615\";f=1.5;d=0.1;D=\"0.05\";S=\"\xc3\xa4\";N=\"/w==\";x=\"YWI=\";"
			 "T=1764534000;F={\"k\":\"last\"};A=[7,null];V=null;?=null;");
	ck_assert_int_eq(headers.items[13].value.type, MSGPACK_OBJECT_BIN);
	ck_assert_int_eq(headers.items[14].value.type, MSGPACK_OBJECT_BIN);
	buf_done(&out);
	arena_done(&arena);
}
END_TEST

START_TEST(test_table_deep)
{
	enum { DEPTH = 200 };
	static amqp_field_value_t levels[DEPTH];
	amqp_table_entry_t e = entry("deep", 'A');
	amqp_table_t table = {1, &e};
	struct header_list headers;
	const msgpack_object *at;
	struct arena arena;
	int depth = 0;

	for (int i = 0; i < DEPTH; i++) {
		levels[i].kind = 'A';
		levels[i].value.array = (amqp_array_t){i + 1 < DEPTH, i + 1 < DEPTH ? &levels[i + 1] : NULL};
	}
	e.value.value.array = (amqp_array_t){1, levels};
	arena_init(&arena);
	headers = table_read(&arena, &table);
	for (at = &headers.items[0].value; at->type == MSGPACK_OBJECT_ARRAY && at->via.array.size;
	     at = &at->via.array.ptr[0])
		depth++;
	ck_assert_int_eq(depth, 33);
	ck_assert(value_is_nil(at));
	arena_done(&arena);
}
END_TEST

START_TEST(test_table_write)
{
	struct arena arena;
	struct header items[8];
	struct header_list headers = {items, 8}, back;
	struct buf out = BUF_INIT;
	amqp_table_t table;

	arena_init(&arena);
	items[0] = (struct header){STR("n"), value_int(1)};
	items[1] = (struct header){STR("n"), value_int(-2)};
	items[2] = (struct header){STR("N"), value_bool(false)};
	items[3] = (struct header){STR("d"), value_double(2.5)};
	items[4] = (struct header){STR("s"), value_text(STR(""))};
	items[5] = (struct header){STR("x"), value_bytes(STR("\x00\xff"))};
	items[6] = (struct header){STR("a"), value_array(&arena, 1)};
	items[6].value.via.array.ptr[0] = value_map(&arena, 1);
	items[6].value.via.array.ptr[0].via.map.ptr[0].key = value_text(STR("k"));
	items[6].value.via.array.ptr[0].via.map.ptr[0].val = value_nil();
	items[7] = (struct header){STR("nil"), value_nil()};
	table = table_write(&arena, &headers);
	ck_assert_int_eq(table.num_entries, 7);
	back = table_read(&arena, &table);
	ck_assert_str_eq(shown(&out, &back), "n=-2;N=false;d=2.5;s=\"\";x=\"AP8=\";a=[{\"k\":null}];nil=null;");
	buf_done(&out);
	arena_done(&arena);
}
END_TEST

/* --- frames --- */

static enum frames_result take_method(struct frames *frames, uint16_t channel, amqp_method_number_t id, void *decoded,
				      struct rabbit_event *event)
{
	amqp_frame_t frame = {.frame_type = AMQP_FRAME_METHOD, .channel = channel};

	frame.payload.method = (amqp_method_t){id, decoded};
	return frames_take(frames, &frame, event);
}

static enum frames_result take_header(struct frames *frames, uint16_t channel, uint64_t size,
				      amqp_basic_properties_t *properties, struct rabbit_event *event)
{
	amqp_frame_t frame = {.frame_type = AMQP_FRAME_HEADER, .channel = channel};

	frame.payload.properties.class_id = AMQP_BASIC_CLASS;
	frame.payload.properties.body_size = size;
	frame.payload.properties.decoded = properties;
	return frames_take(frames, &frame, event);
}

static enum frames_result take_body(struct frames *frames, uint16_t channel, const char *text,
				    struct rabbit_event *event)
{
	amqp_frame_t frame = {.frame_type = AMQP_FRAME_BODY, .channel = channel};

	frame.payload.body_fragment = amqp_cstring_bytes(text);
	return frames_take(frames, &frame, event);
}

START_TEST(test_frames_interleave)
{
	amqp_basic_deliver_t deliver = {.delivery_tag = 7, .redelivered = 1};
	amqp_basic_return_t returned = {.reply_code = 312, .reply_text = amqp_cstring_bytes("NO_ROUTE")};
	amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG,
					      .message_id = amqp_cstring_bytes("m"),
					      .timestamp = 5};
	amqp_basic_properties_t none = {._flags = 0};
	amqp_basic_ack_t ack = {.delivery_tag = 3, .multiple = 1};
	struct frames frames;
	struct rabbit_event event;

	frames_init(&frames);
	ck_assert_int_eq(take_method(&frames, 1, AMQP_BASIC_DELIVER_METHOD, &deliver, &event), FRAMES_NOTHING);
	ck_assert_int_eq(take_method(&frames, 2, AMQP_BASIC_RETURN_METHOD, &returned, &event), FRAMES_NOTHING);
	ck_assert_int_eq(take_header(&frames, 1, 4, &properties, &event), FRAMES_NOTHING);
	ck_assert_int_eq(take_body(&frames, 1, "ab", &event), FRAMES_NOTHING);
	/* Without a body the header is the end. */
	ck_assert_int_eq(take_header(&frames, 2, 0, &none, &event), FRAMES_EVENT);
	ck_assert_int_eq(event.kind, RABBIT_EVENT_RETURNED);
	ck_assert_uint_eq(event.code, 312);
	ck_assert_str_eq(event.text, "NO_ROUTE");
	ck_assert(event.body.ptr && !event.body.len && !event.properties.message_id.ptr);
	ck_assert_int_eq(take_method(&frames, 2, AMQP_BASIC_ACK_METHOD, &ack, &event), FRAMES_EVENT);
	ck_assert(event.kind == RABBIT_EVENT_ACK && event.tag == 3 && event.multiple && event.channel == 2);
	ck_assert_int_eq(take_body(&frames, 1, "cd", &event), FRAMES_EVENT);
	ck_assert(event.kind == RABBIT_EVENT_DELIVERED && event.tag == 7 && event.redelivered && event.channel == 1);
	ck_assert(str_equal(event.body, STR("abcd")) && str_equal(event.properties.message_id, STR("m")));
	ck_assert_int_eq(event.properties.timestamp_s, 5);
	frames_done(&frames);
}
END_TEST

START_TEST(test_frames_broken)
{
	amqp_basic_deliver_t deliver = {.delivery_tag = 1};
	amqp_channel_close_t close = {.reply_code = 406, .reply_text = amqp_cstring_bytes("no")};
	amqp_basic_properties_t none = {._flags = 0};
	amqp_frame_t heartbeat = {.frame_type = AMQP_FRAME_HEARTBEAT};
	struct frames frames;
	struct rabbit_event event;

	frames_init(&frames);
	ck_assert_int_eq(frames_take(&frames, &heartbeat, &event), FRAMES_NOTHING);
	ck_assert_int_eq(take_header(&frames, 1, 0, &none, &event), FRAMES_BROKEN);
	ck_assert_int_eq(take_body(&frames, 1, "x", &event), FRAMES_BROKEN);
	take_method(&frames, 1, AMQP_BASIC_DELIVER_METHOD, &deliver, &event);
	ck_assert_int_eq(take_method(&frames, 1, AMQP_BASIC_DELIVER_METHOD, &deliver, &event), FRAMES_BROKEN);
	/* But a channel may be closed in the middle of a message, and is as new afterwards. */
	ck_assert_int_eq(take_method(&frames, 1, AMQP_CHANNEL_CLOSE_METHOD, &close, &event), FRAMES_EVENT);
	ck_assert(event.kind == RABBIT_EVENT_FAILED && event.code == 406);
	take_method(&frames, 1, AMQP_BASIC_DELIVER_METHOD, &deliver, &event);
	take_header(&frames, 1, 1, &none, &event);
	ck_assert_int_eq(take_body(&frames, 1, "xy", &event), FRAMES_BROKEN);
	frames_done(&frames);
}
END_TEST

/* --- tags --- */

static void note_ack(void *user, uint64_t tag, bool multiple)
{
	buf_printf(user, "%s%" PRIu64 " ", multiple ? "<=" : "", tag);
}

static void note_nack(void *user, uint64_t tag)
{
	buf_printf(user, "-%" PRIu64 " ", tag);
}

static const char *flushed(struct tags *tags, enum tags_flush what, struct buf *out)
{
	buf_reset(out);
	tags_flush(tags, what, &(struct tags_out){note_ack, note_nack, out});
	buf_add_text(out, "");
	return out->data ? out->data : "";
}

START_TEST(test_tags)
{
	struct buf out = BUF_INIT;
	struct tags tags;

	tags_init(&tags);
	for (uint64_t tag = 1; tag <= 200; tag++)
		tags_add(&tags, tag);
	tags_settle(&tags, 2, TAG_DONE);
	tags_settle(&tags, 1, TAG_DONE);
	tags_settle(&tags, 5, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES | TAGS_BACK, &out), "<=2 5 ");
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES | TAGS_BACK, &out), "");
	/* The hole closes: the answered one behind it is in the run and not answered again. */
	tags_settle(&tags, 4, TAG_DONE);
	tags_settle(&tags, 3, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES | TAGS_BACK, &out), "<=4 ");
	/* What goes back holds up the run, and is kept until it may go: in order of delivery. */
	tags_settle(&tags, 8, TAG_BACK);
	tags_settle(&tags, 6, TAG_BACK);
	tags_settle(&tags, 7, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES, &out), "7 ");
	tags_settle(&tags, 9, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES | TAGS_BACK, &out), "9 -6 -8 ");
	for (uint64_t tag = 10; tag <= 200; tag++)
		tags_settle(&tags, tag, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES | TAGS_BACK, &out), "<=200 ");
	ck_assert_uint_eq(tags.count, 0);
	tags_add(&tags, 201);
	tags_settle(&tags, 201, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_HOLES | TAGS_BACK, &out), "201 ");
	/* What is done behind a hole may wait for the run. */
	for (uint64_t tag = 202; tag <= 209; tag++)
		tags_add(&tags, tag);
	tags_settle(&tags, 203, TAG_DONE);
	tags_settle(&tags, 205, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_RUN, &out), "");
	ck_assert_uint_eq(tags_kept(&tags), 2);
	tags_settle(&tags, 202, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_RUN | TAGS_BACK, &out), "<=203 ");
	ck_assert_uint_eq(tags_kept(&tags), 1);
	tags_settle(&tags, 207, TAG_BACK);
	ck_assert_str_eq(flushed(&tags, TAGS_RUN, &out), "");
	ck_assert_str_eq(flushed(&tags, TAGS_BACK, &out), "205 -207 ");
	tags_settle(&tags, 209, TAG_DONE);
	tags_settle(&tags, 204, TAG_DONE);
	tags_settle(&tags, 206, TAG_DONE);
	tags_settle(&tags, 208, TAG_DONE);
	ck_assert_str_eq(flushed(&tags, TAGS_RUN, &out), "<=209 ");
	ck_assert_uint_eq(tags_kept(&tags), 0);
	tags_done(&tags);
	buf_done(&out);
}
END_TEST

/* Against a plain model: every tag is answered once and as it was settled, and an ack of many covers none that is out. */
struct model {
	int settled[2001]; /* 0 out, 1 done, 2 back */
	bool answered[2001];
	uint64_t last_back;
};

static void model_ack(void *user, uint64_t tag, bool multiple)
{
	struct model *model = user;

	ck_assert_int_eq(model->settled[tag], 1);
	ck_assert(!model->answered[tag]);
	for (uint64_t i = multiple ? 1 : tag; i <= tag; i++) {
		ck_assert_msg(model->answered[i] || model->settled[i] == 1, "%" PRIu64 " acks %" PRIu64, tag, i);
		model->answered[i] = true;
	}
}

static void model_nack(void *user, uint64_t tag)
{
	struct model *model = user;

	ck_assert_int_eq(model->settled[tag], 2);
	ck_assert(!model->answered[tag] && tag > model->last_back);
	model->answered[tag] = true;
	model->last_back = tag;
}

static void model_flush(struct tags *tags, struct model *model, enum tags_flush what)
{
	model->last_back = 0;
	tags_flush(tags, what, &(struct tags_out){model_ack, model_nack, model});
}

START_TEST(test_tags_random)
{
	struct model *model = mem_zalloc(sizeof(*model));
	uint64_t seed = 42 + (uint64_t)_i, next = 1;
	struct tags tags;

	tags_init(&tags);
	for (int round = 0; round < 60000; round++) {
		uint64_t low = next > 80 ? next - 80 : 1, tag;

		seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		if ((seed >> 40) % 3 == 0 && next <= 2000) {
			tags_add(&tags, next++);
			continue;
		}
		/* Near the newest, and at the end all. */
		tag = next > 2000 ? 1 + (seed >> 33) % 2000 : low + (seed >> 33) % 80;
		if (tag < next && !model->settled[tag]) {
			model->settled[tag] = (seed >> 50) % 8 ? 1 : 2;
			tags_settle(&tags, tag, model->settled[tag] == 1 ? TAG_DONE : TAG_BACK);
		}
		if ((seed >> 20) % 4 == 0)
			model_flush(&tags, model, (seed >> 25) % 4);
	}
	for (uint64_t tag = 1; tag < next; tag++)
		if (!model->settled[tag]) {
			model->settled[tag] = 1;
			tags_settle(&tags, tag, TAG_DONE);
		}
	model_flush(&tags, model, TAGS_HOLES);
	ck_assert_uint_eq(next, 2001);
	for (uint64_t tag = 1; tag < next; tag++)
		ck_assert(model->answered[tag]);
	ck_assert_uint_eq(tags.count, 0);
	tags_done(&tags);
	free(model);
}
END_TEST

/* --- destinations and properties --- */

START_TEST(test_destinations)
{
	static const struct {
		const char *destination, *exchange, *key;
	} cases[] = {{"queue", "", "queue"}, {"/queue", "", "queue"}, {"/a/b", "", "a/b"}, {"x/k", "x", "k"},
		     {"x/a/b", "x", "a/b"},  {"x/", "x", ""}};
	struct str exchange, key;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		amqp_destination_split(str_of(cases[i].destination), &exchange, &key);
		ck_assert(str_equal(exchange, str_of(cases[i].exchange)));
		ck_assert(str_equal(key, str_of(cases[i].key)));
	}
}
END_TEST

START_TEST(test_properties)
{
	char big[300], text[160] = "";
	struct header header = {STR("h"), value_int(1)};
	struct publication pub = {.message_id = STR("id"), .type = STR("t"), .content_type = STR("c/t"),
				  .correlation = value_int(5), .headers = {&header, 1}};
	struct rabbit_properties out;
	struct arena arena;
	char *huge;

	memset(big, 'x', sizeof(big));
	arena_init(&arena);
	ck_assert(amqp_properties_of(&arena, &pub, &out, text, sizeof(text)));
	ck_assert(str_equal(out.message_id, STR("id")) && str_equal(out.correlation_id, STR("5")));
	ck_assert(str_equal(out.type, STR("t")) && str_equal(out.content_type, STR("c/t")) && !out.reply_to.ptr);
	ck_assert_uint_eq(out.headers.count, 2);
	ck_assert(str_equal(out.headers.items[1].name, STR("sutra-outbox-key")));
	header.name = str_make(big, 256);
	ck_assert(!amqp_properties_of(&arena, &pub, &out, text, sizeof(text)));
	header.name = STR("h");
	pub.type = str_make(big, 256);
	ck_assert(!amqp_properties_of(&arena, &pub, &out, text, sizeof(text)));
	ck_assert_str_eq(text, "type is longer than AMQP's 255 bytes");
	pub.type = str_make(big, 255);
	huge = arena_zalloc(&arena, 130000);
	header.value = value_bytes(str_make(huge, 130000));
	ck_assert(!amqp_properties_of(&arena, &pub, &out, text, sizeof(text)));
	header.value = value_bytes(str_make(huge, 110000));
	ck_assert(amqp_properties_of(&arena, &pub, &out, text, sizeof(text)));
	arena_done(&arena);
}
END_TEST

START_TEST(test_message)
{
	struct header header = {STR("h"), value_text(STR("v"))};
	struct rabbit_event event = {.kind = RABBIT_EVENT_DELIVERED, .tag = 9, .redelivered = true, .body = STR("")};
	struct message *message;

	event.properties = (struct rabbit_properties){.content_type = STR("a/b"),
						      .correlation_id = STR("\xff"),
						      .reply_to = STR("my/queue"),
						      .message_id = STR("m"),
						      .type = STR("t"),
						      .timestamp_s = 2,
						      .headers = {&header, 1}};
	message = amqp_message_of(&event, "q/1");
	ck_assert(!message->identity.ptr && !message->order_key.ptr && !message->key.ptr);
	ck_assert(str_equal(message->source, STR("amqp:q/1/9")));
	ck_assert(str_equal(message->reply_destination, STR("/my/queue")));
	ck_assert_int_eq(message->reply_correlation.type, MSGPACK_OBJECT_BIN);
	ck_assert(message->body.ptr && !message->body.len && message->redelivered && message->token == 9);
	ck_assert_int_eq(message->time_us, 2000000);
	ck_assert(str_equal(message->type, STR("t")) && str_equal(message->message_id, STR("m")));
	message_free(&message);
	event.properties = (struct rabbit_properties){0};
	event.body = STR("body");
	message = amqp_message_of(&event, "q");
	ck_assert(!message->reply_destination.ptr && value_is_nil(&message->reply_correlation));
	ck_assert(!message->type.ptr && !message->message_id.ptr && !message->time_us);
	ck_assert_uint_eq(message->bytes, 4);
	message_free(&message);
}
END_TEST

/* --- the watchdog --- */

START_TEST(test_watchdog)
{
	struct loop *loop = loop_start(runtime_threads(), "dog");
	struct timeval deadline = {20, 0};
	struct watchdog watchdog;
	int pair[2];
	char byte;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
	ck_assert(watchdog_start(&watchdog, loop, pair[0], 100000));
	watchdog_begin(&watchdog);
	/* A call that waits for a peer that says nothing: it ends, and not by its own deadline. */
	ck_assert_int_eq(recv(pair[0], &byte, 1, 0), 0);
	watchdog_end(&watchdog);
	ck_assert(watchdog_has_fired(&watchdog));
	watchdog_stop(&watchdog);
	watchdog_stop(&watchdog);
	close(pair[0]);
	close(pair[1]);

	/* Calls that return leave it alone. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ck_assert(watchdog_start(&watchdog, loop, pair[0], 60000000));
	for (int i = 0; i < 100; i++) {
		watchdog_begin(&watchdog);
		watchdog_end(&watchdog);
	}
	watchdog_stop(&watchdog);
	ck_assert(!watchdog_has_fired(&watchdog));
	ck_assert_int_eq(send(pair[1], "x", 1, MSG_NOSIGNAL), 1);
	close(pair[0]);
	close(pair[1]);
	loop_stop(&loop);
}
END_TEST

static Suite *amqp_suite(void)
{
	Suite *suite = suite_create("amqp tables");
	TCase *tcase = tcase_create("all");

	TEST_ADD_ALL(tcase, test_table_read, test_table_deep, test_table_write, test_frames_interleave,
		     test_frames_broken, test_tags, test_destinations, test_properties, test_message,
		     test_watchdog);
	tcase_add_loop_test(tcase, test_tags_random, 0, 10);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(amqp_suite)
