/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as the routes write it: straight into the answer, a comma wherever something stands before. */
#include "admin/internal.h"
#include "base/time.h"

static void json_separate(struct buf *out)
{
	char last = out->len ? out->data[out->len - 1] : '[';

	if (last != '{' && last != '[' && last != ':')
		buf_add_byte(out, ',');
}

void json_open(struct buf *out, char bracket)
{
	json_separate(out);
	buf_add_byte(out, bracket);
}

void json_close(struct buf *out, char bracket)
{
	buf_add_byte(out, bracket);
}

void json_name(struct buf *out, const char *name)
{
	if (name)
		json_name_str(out, str_of(name));
	else
		json_separate(out);
}

void json_name_str(struct buf *out, struct str name)
{
	json_separate(out);
	buf_add_json(out, name);
	buf_add_byte(out, ':');
}

void json_text(struct buf *out, const char *name, struct str value)
{
	json_name(out, name);
	if (value.ptr)
		buf_add_json(out, value);
	else
		buf_add_text(out, "null");
}

void json_int(struct buf *out, const char *name, int64_t value)
{
	json_name(out, name);
	buf_printf(out, "%lld", (long long)value);
}

void json_bool(struct buf *out, const char *name, bool value)
{
	json_name(out, name);
	buf_add_text(out, value ? "true" : "false");
}

void json_null(struct buf *out, const char *name)
{
	json_text(out, name, STR_NONE);
}

void json_id(struct buf *out, const char *name, struct id value)
{
	char text[ID_TEXT_SIZE];

	json_text(out, name, str_of(id_format(value, text)));
}

void json_value(struct buf *out, const char *name, const msgpack_object *value)
{
	struct error err = ERROR_INIT;
	size_t before;

	json_name(out, name);
	before = out->len;
	if (value_json_write(value, out, &err) == RESULT_OK)
		return;
	out->len = before;
	struct buf print = BUF_INIT;

	value_print(value, 4096, &print);
	buf_add_json(out, buf_str(&print));
	buf_done(&print);
}

void json_text_field(struct buf *out, const char *name, const struct field *field)
{
	json_text(out, name, field->is_null ? STR_NONE : field->str);
}

void json_time_field(struct buf *out, const char *name, const struct field *field)
{
	char text[TIME_TEXT_SIZE];

	json_text(out, name, field->is_null ? STR_NONE : str_of(time_format(field->i, text)));
}

void json_id_field(struct buf *out, const char *name, const struct field *field)
{
	if (field->is_null)
		json_null(out, name);
	else
		json_id(out, name, field->id);
}

void json_next(struct buf *out, struct str cursor)
{
	json_close(out, ']');
	json_text(out, "next", cursor);
	json_close(out, '}');
}
