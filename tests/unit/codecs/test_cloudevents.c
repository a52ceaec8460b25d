/* SPDX-License-Identifier: Apache-2.0 */
#include "codecs/cloudevents/cloudevents.h"

#include "tests/support/testing.h"

static struct arena arena;
static struct error err;

static void setup(void)
{
	arena_init(&arena);
	err = ERROR_INIT;
}

static void teardown(void)
{
	arena_done(&arena);
}

/* "name=value" texts, ended by NULL, as headers. */
static struct header_list make_headers(const char *const *texts)
{
	struct header_list headers = {arena_alloc(&arena, 20 * sizeof(struct header)), 0};

	for (; texts && *texts; texts++) {
		struct str text = str_of(*texts);
		size_t split = (size_t)str_find(text, '=');

		headers.items[headers.count++] = (struct header){
			str_make(text.ptr, split),
			value_text(str_make(text.ptr + split + 1, text.len - split - 1))};
	}
	return headers;
}

static enum result read_event(enum cloudevents_mode mode, enum cloudevents_style style,
			      const char *const *texts, const char *content_type, const char *body,
			      struct cloudevent *out)
{
	struct header_list headers = make_headers(texts);

	err = ERROR_INIT;
	return cloudevents_read(&arena, mode, style, &headers, str_of(content_type), str_of(body),
				&VALUE_LIMITS_DEFAULT, out, &err);
}

#define SET(prefix) \
	prefix "specversion=1.0", prefix "id=7", prefix "source=/shop", prefix "type=order.placed"

START_TEST(plain_messages_stay_plain)
{
	static const char *const headers[] = {"x=1", "ce_id=1", NULL};
	struct cloudevent event;

	ck_assert_int_eq(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA, headers,
				    "application/json", "{}", &event),
			 RESULT_OK);
	ck_assert(!event.present && !event.has_value);
	ck_assert_str_slice(event.data, STR("{}"));
	ck_assert_ptr_null(event.id.ptr);
	/* A null body stays absent, for the codec to see. */
	ck_assert_int_eq(
		read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_AMQP, NULL, NULL, NULL, &event),
		RESULT_OK);
	ck_assert_ptr_null(event.data.ptr);
}
END_TEST

START_TEST(mode_none_sees_no_event)
{
	static const char *const headers[] = {SET("ce_"), NULL};
	struct cloudevent event;

	ck_assert_int_eq(read_event(CLOUDEVENTS_NONE, CLOUDEVENTS_STYLE_KAFKA, headers,
				    "application/cloudevents+json", "x", &event),
			 RESULT_OK);
	ck_assert(!event.present);
	ck_assert_str_slice(event.data, STR("x"));
}
END_TEST

START_TEST(binary_over_kafka)
{
	static const char *const headers[] = {SET("ce_"), "ce_subject=s", "ce_dataschema=d",
					      "ce_time=2026-11-30T12:00:00.123456789+01:00", NULL};
	struct cloudevent event;

	for (int mode = CLOUDEVENTS_AUTO; mode <= CLOUDEVENTS_BINARY; mode += CLOUDEVENTS_BINARY) {
		ck_assert_msg(read_event(mode, CLOUDEVENTS_STYLE_KAFKA, headers, "text/plain", "b",
					 &event) == RESULT_OK,
			      "%s", err.text);
		ck_assert(event.present && !event.has_value);
		ck_assert_str_slice(event.id, STR("7"));
		ck_assert_str_slice(event.source, STR("/shop"));
		ck_assert_str_slice(event.type, STR("order.placed"));
		ck_assert_str_slice(event.subject, STR("s"));
		ck_assert_str_slice(event.data_schema, STR("d"));
		ck_assert_str_slice(event.data_content_type, STR("text/plain"));
		ck_assert_str_slice(event.data, STR("b"));
		ck_assert_ptr_nonnull(event.time.ptr);
	}
}
END_TEST

START_TEST(amqp_takes_four_spellings)
{
	static const char *const sets[][5] = {
		{SET("cloudEvents_"), NULL},
		{SET("cloudEvents:"), NULL},
		{SET("ce-"), NULL},
		{SET("ce_"), NULL},
	};
	static const char *const both[] = {SET("ce_"),           "cloudEvents:specversion=1.0",
					   "cloudEvents:id=8",   "cloudEvents:source=s",
					   "cloudEvents:type=t", NULL};
	static const char *const incomplete_first[] = {"cloudEvents_id=9", SET("ce-"), NULL};
	struct cloudevent event;

	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		ck_assert_int_eq(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_AMQP, sets[i], NULL,
					    "b", &event),
				 RESULT_OK);
		ck_assert(event.present);
		ck_assert_str_slice(event.id, STR("7"));
		/* Kafka knows one of them. */
		ck_assert_int_eq(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA, sets[i],
					    NULL, "b", &event),
				 RESULT_OK);
		ck_assert(event.present == (i == 3));
	}
	ck_assert_int_eq(
		read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_AMQP, both, NULL, "b", &event),
		RESULT_OK);
	ck_assert_str_slice(event.id, STR("8"));
	ck_assert_int_eq(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_AMQP, incomplete_first,
				    NULL, "b", &event),
			 RESULT_OK);
	ck_assert_str_slice(event.id, STR("7"));
}
END_TEST

START_TEST(attribute_names_are_case_sensitive)
{
	static const char *const headers[] = {SET("CE_"), NULL};
	struct cloudevent event;

	ck_assert_int_eq(
		read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA, headers, NULL, "b", &event),
		RESULT_OK);
	ck_assert(!event.present);
}
END_TEST

static void check_binary_rejected(enum cloudevents_mode mode, const char *const *headers)
{
	struct cloudevent event = {.present = false, .id = STR("untouched")};

	ck_assert_int_eq(
		read_event(mode, CLOUDEVENTS_STYLE_KAFKA, headers, "text/plain", "b", &event),
		RESULT_REJECT);
	ck_assert_int_eq(err.code, CODE_PARSE_CLOUDEVENT);
	ck_assert_str_slice(event.id, STR("untouched"));
}

START_TEST(incomplete_binary_events_are_rejected)
{
	static const char *const cases[][8] = {
		{"ce_specversion=1.0", NULL},
		{"ce_specversion=1.0", "ce_id=1", "ce_source=s", NULL},
		{"ce_specversion=1.0", "ce_id=1", "ce_type=t", NULL},
		{"ce_specversion=1.0", "ce_source=s", "ce_type=t", NULL},
		{"ce_specversion=1.0", "ce_id=", "ce_source=s", "ce_type=t", NULL},
		{"ce_specversion=", "ce_id=1", "ce_source=s", "ce_type=t", NULL},
		{"ce_specversion=0.3", "ce_id=1", "ce_source=s", "ce_type=t", NULL},
		{SET("ce_"), "ce_time=yesterday", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_binary_rejected(CLOUDEVENTS_AUTO, cases[i]);
	check_binary_rejected(CLOUDEVENTS_BINARY, NULL);
}
END_TEST

START_TEST(attributes_of_other_types)
{
	static const char *const texts[] = {SET("ce_"), NULL};
	struct header_list headers = make_headers(texts);
	struct cloudevent event;

	headers.items[1].value = value_int(17);
	ck_assert_int_eq(cloudevents_read(&arena, CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA,
					  &headers, STR_NONE, STR("b"), &VALUE_LIMITS_DEFAULT,
					  &event, &err),
			 RESULT_OK);
	ck_assert_str_slice(event.id, STR("17"));
	headers.items[1].value = value_bytes(STR("\xff"));
	ck_assert_int_eq(cloudevents_read(&arena, CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA,
					  &headers, STR_NONE, STR("b"), &VALUE_LIMITS_DEFAULT,
					  &event, &err),
			 RESULT_REJECT);
	ck_assert_int_eq(err.code, CODE_PARSE_CLOUDEVENT);
}
END_TEST

#define ENVELOPE "\"specversion\":\"1.0\",\"id\":\"7\",\"source\":\"/shop\",\"type\":\"t\""

START_TEST(structured_events)
{
	static const char *const types[] = {"application/cloudevents+json",
					    "Application/CloudEvents+JSON; charset=utf-8",
					    "application/cloudevents"};
	struct cloudevent event;
	int64_t number;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		ck_assert_msg(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA, NULL, types[i],
					 "{" ENVELOPE
					 ",\"data\":9007199254740993,\"subject\":null}",
					 &event) == RESULT_OK,
			      "%s", err.text);
		ck_assert(event.present && event.has_value && !event.data.ptr);
		ck_assert_str_slice(event.id, STR("7"));
		ck_assert_ptr_null(event.subject.ptr);
		ck_assert(value_as_int(&event.value, &number) && number == 9007199254740993);
	}
	ck_assert_int_eq(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_AMQP, NULL, types[0],
				    "{" ENVELOPE "}", &event),
			 RESULT_OK);
	ck_assert(event.has_value && value_is_nil(&event.value));
	ck_assert_int_eq(
		read_event(CLOUDEVENTS_STRUCTURED, CLOUDEVENTS_STYLE_AMQP, NULL, types[0],
			   "{\"data_base64\":\"AP8=\",\"datacontenttype\":\"x/y\"," ENVELOPE "}",
			   &event),
		RESULT_OK);
	ck_assert(!event.has_value);
	ck_assert_str_slice(event.data, STR("\0\xff"));
	ck_assert_str_slice(event.data_content_type, STR("x/y"));
}
END_TEST

START_TEST(kafka_content_type_from_the_header)
{
	static const char *const headers[] = {"content-type=application/cloudevents+json", NULL};
	struct cloudevent event;

	ck_assert_int_eq(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA, headers, NULL,
				    "{" ENVELOPE "}", &event),
			 RESULT_OK);
	ck_assert(event.present && event.has_value);
}
END_TEST

START_TEST(malformed_structured_events_are_rejected)
{
	static const struct {
		const char *type, *body;
		enum code code;
	} cases[] = {
		{"application/cloudevents+json", "[]", CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", NULL, CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "", CODE_PARSE_JSON},
		{"application/cloudevents+json", "{", CODE_PARSE_JSON},
		{"application/cloudevents+json", "{" ENVELOPE ",\"id\":\"8\"}",
		 CODE_PARSE_DUPLICATE_KEY},
		{"application/cloudevents+json", "{}", CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "{" ENVELOPE ",\"time\":1}",
		 CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "{" ENVELOPE ",\"time\":\"x\"}",
		 CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "{" ENVELOPE ",\"data_base64\":\"?\"}",
		 CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "{" ENVELOPE ",\"data_base64\":1}",
		 CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "{" ENVELOPE ",\"data\":1,\"data_base64\":\"\"}",
		 CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents-batch+json", "[]", CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+avro", "x", CODE_PARSE_CLOUDEVENT},
		{"application/cloudevents+json", "{" ENVELOPE ",\"data\":1e400}", CODE_PARSE_LIMIT},
	};
	struct cloudevent event;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ck_assert_msg(read_event(CLOUDEVENTS_AUTO, CLOUDEVENTS_STYLE_KAFKA, NULL,
					 cases[i].type, cases[i].body, &event) == RESULT_REJECT,
			      "%zu", i);
		ck_assert_msg(err.code == cases[i].code, "%zu: %s", i, err.text);
	}
	ck_assert_int_eq(read_event(CLOUDEVENTS_STRUCTURED, CLOUDEVENTS_STYLE_KAFKA, NULL,
				    "application/json", "{\"a\":1}", &event),
			 RESULT_REJECT);
	ck_assert_int_eq(err.code, CODE_PARSE_CLOUDEVENT);
}
END_TEST

static const struct cloudevent outgoing = {.id = {"i\"1", 3},
					   .source = {"/s", 2},
					   .type = {"t", 1},
					   .time = {"2026-11-30T12:00:00Z", 20}};

START_TEST(structured_writing_has_a_fixed_order)
{
	msgpack_object data = value_double(1.0);
	struct header_list headers;
	struct str type;
	struct buf body = BUF_INIT;

	ck_assert_int_eq(cloudevents_write(&arena, CLOUDEVENTS_STRUCTURED, CLOUDEVENTS_STYLE_KAFKA,
					   &outgoing, &data, codec_find(STR("json")), &body, &type,
					   &headers, &err),
			 RESULT_OK);
	ck_assert_str_slice(buf_str(&body),
			    STR("{\"specversion\":\"1.0\",\"id\":\"i\\\"1\",\"source\":\"/s\","
				"\"type\":\"t\",\"time\":\"2026-11-30T12:00:00Z\","
				"\"datacontenttype\":\"application/json\",\"data\":1.0}"));
	ck_assert_str_slice(type, STR("application/cloudevents+json"));
	ck_assert_uint_eq(headers.count, 0);
	buf_done(&body);
}
END_TEST

/* What is written is read back, by every codec, mode and style. */
START_TEST(written_events_are_read_back)
{
	msgpack_object data = value_text(STR("ä\"\n"));

	for (int mode = CLOUDEVENTS_BINARY; mode <= CLOUDEVENTS_STRUCTURED; mode++)
		for (int style = CLOUDEVENTS_STYLE_KAFKA; style <= CLOUDEVENTS_STYLE_AMQP; style++)
			for (size_t i = 0; codec_at(i); i++) {
				struct buf body = BUF_INIT;
				struct cloudevent event;
				struct header_list headers;
				struct str type;
				msgpack_object back;

				ck_assert_int_eq(cloudevents_write(&arena, mode, style, &outgoing,
								   &data, codec_at(i), &body, &type,
								   &headers, &err),
						 RESULT_OK);
				ck_assert_msg(cloudevents_read(&arena, CLOUDEVENTS_AUTO, style,
							       &headers, type, buf_str(&body),
							       &VALUE_LIMITS_DEFAULT, &event,
							       &err) == RESULT_OK,
					      "%s", err.text);
				ck_assert(event.present);
				ck_assert_str_slice(event.id, outgoing.id);
				ck_assert_str_slice(event.source, outgoing.source);
				ck_assert_str_slice(event.type, outgoing.type);
				ck_assert_str_slice(event.time, outgoing.time);
				ck_assert_str_slice(event.data_content_type,
						    str_of(codec_at(i)->content_type));
				if (event.has_value)
					back = event.value;
				else
					ck_assert_int_eq(codec_at(i)->decode(&arena, event.data,
									     &VALUE_LIMITS_DEFAULT,
									     &back, &err),
							 RESULT_OK);
				ck_assert_str_slice(value_as_str(&back), value_as_str(&data));
				buf_done(&body);
			}
}
END_TEST

START_TEST(binary_headers_by_style)
{
	msgpack_object data = value_nil();
	struct header_list headers;
	struct str type;
	struct buf body = BUF_INIT;

	ck_assert_int_eq(cloudevents_write(&arena, CLOUDEVENTS_BINARY, CLOUDEVENTS_STYLE_AMQP,
					   &outgoing, &data, codec_find(STR("text")), &body, &type,
					   &headers, &err),
			 RESULT_OK);
	ck_assert_uint_eq(headers.count, 5);
	ck_assert_str_slice(headers.items[0].name, STR("cloudEvents_specversion"));
	ck_assert_str_slice(headers.items[1].name, STR("cloudEvents_id"));
	ck_assert_str_slice(headers.items[4].name, STR("cloudEvents_time"));
	ck_assert_int_eq(cloudevents_write(&arena, CLOUDEVENTS_BINARY, CLOUDEVENTS_STYLE_KAFKA,
					   &outgoing, &data, codec_find(STR("text")), &body, &type,
					   &headers, &err),
			 RESULT_OK);
	ck_assert_str_slice(headers.items[0].name, STR("ce_specversion"));
	buf_done(&body);
}
END_TEST

START_TEST(what_cannot_be_written_is_refused)
{
	struct cloudevent bad[4] = {outgoing, outgoing, outgoing, outgoing};
	msgpack_object data = value_nil(), map = value_map(&arena, 0);
	struct header_list headers;
	struct str type;
	struct buf body = BUF_INIT;

	bad[0].id = STR_NONE;
	bad[1].source = STR("");
	bad[2].type = STR_NONE;
	bad[3].subject = STR("\xff");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		err = ERROR_INIT;
		ck_assert_int_eq(cloudevents_write(&arena, CLOUDEVENTS_STRUCTURED,
						   CLOUDEVENTS_STYLE_KAFKA, &bad[i], &data,
						   codec_find(STR("json")), &body, &type, &headers,
						   &err),
				 RESULT_REJECT);
		ck_assert_int_eq(err.code, CODE_OUTBOUND_ENCODE_FAILED);
	}
	for (int mode = CLOUDEVENTS_BINARY; mode <= CLOUDEVENTS_STRUCTURED; mode++)
		ck_assert_int_eq(cloudevents_write(&arena, mode, CLOUDEVENTS_STYLE_KAFKA, &outgoing,
						   &map, codec_find(STR("text")), &body, &type,
						   &headers, &err),
				 RESULT_REJECT);
	buf_done(&body);
}
END_TEST

static Suite *cloudevents_suite(void)
{
	Suite *suite = suite_create("cloudevents");
	TCase *tcase = tcase_create("cloudevents");

	tcase_add_checked_fixture(tcase, setup, teardown);
	TEST_ADD_ALL(tcase, plain_messages_stay_plain, mode_none_sees_no_event, binary_over_kafka,
		     amqp_takes_four_spellings, attribute_names_are_case_sensitive,
		     incomplete_binary_events_are_rejected, attributes_of_other_types,
		     structured_events, kafka_content_type_from_the_header,
		     malformed_structured_events_are_rejected, structured_writing_has_a_fixed_order,
		     written_events_are_read_back, binary_headers_by_style,
		     what_cannot_be_written_is_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(cloudevents_suite)
