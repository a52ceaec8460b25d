/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header tables both ways. The recursion is as deep as the tables are; what comes in is cut at DEPTH_MAX, what goes out was
 * bounded by the codecs or by the expression that made it.
 */
#include "transports/amqp/table.h"

#include <inttypes.h>

#define DEPTH_MAX 32

/* --- in --- */

static msgpack_object field_read(struct arena *arena, const amqp_field_value_t *field, int depth);

static msgpack_object text_read(struct arena *arena, amqp_bytes_t bytes)
{
	struct str copy = arena_str(arena, rabbit_str(bytes));

	return str_is_utf8(copy) ? value_text(copy) : value_bytes(copy);
}

static msgpack_object unsigned_read(struct arena *arena, uint64_t number)
{
	if (number <= INT64_MAX)
		return value_int((int64_t)number);
	return value_text(str_of(arena_printf(arena, "%" PRIu64, number)));
}

/* AMQP's decimal: an unsigned number of which the last digits stand behind the point. */
static msgpack_object decimal_read(struct arena *arena, amqp_decimal_t decimal)
{
	char digits[300];
	int len = snprintf(digits, sizeof(digits), "%0*" PRIu32, decimal.decimals + 1, decimal.value);
	int whole = len - decimal.decimals;

	if (!decimal.decimals)
		return value_text(arena_str(arena, str_make(digits, (size_t)len)));
	return value_text(str_of(arena_printf(arena, "%.*s.%s", whole, digits, digits + whole)));
}

static msgpack_object array_read(struct arena *arena, const amqp_array_t *array, int depth)
{
	uint32_t count = array->num_entries > 0 ? (uint32_t)array->num_entries : 0;
	msgpack_object list = value_array(arena, count);

	for (uint32_t i = 0; i < count; i++)
		list.via.array.ptr[i] = field_read(arena, &array->entries[i], depth);
	return list;
}

/* Keys of a map are text and stand once each: of a repeated one the last counts. */
static msgpack_object map_read(struct arena *arena, const amqp_table_t *table, int depth)
{
	uint32_t count = table->num_entries > 0 ? (uint32_t)table->num_entries : 0;
	msgpack_object map = value_map(arena, count);
	uint32_t used = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct str name = rabbit_str(table->entries[i].key);
		uint32_t at = 0;

		if (!str_is_utf8(name))
			continue;
		while (at < used && !str_equal(value_as_str(&map.via.map.ptr[at].key), name))
			at++;
		if (at == used)
			map.via.map.ptr[used++].key = value_text(arena_str(arena, name));
		map.via.map.ptr[at].val = field_read(arena, &table->entries[i].value, depth);
	}
	map.via.map.size = used;
	return map;
}

static msgpack_object field_read(struct arena *arena, const amqp_field_value_t *field, int depth)
{
	if (depth > DEPTH_MAX)
		return value_nil();
	switch ((amqp_field_value_kind_t)field->kind) {
	case AMQP_FIELD_KIND_BOOLEAN:
		return value_bool(field->value.boolean);
	case AMQP_FIELD_KIND_I8:
		return value_int(field->value.i8);
	case AMQP_FIELD_KIND_U8:
		return value_int(field->value.u8);
	case AMQP_FIELD_KIND_I16:
		return value_int(field->value.i16);
	case AMQP_FIELD_KIND_U16:
		return value_int(field->value.u16);
	case AMQP_FIELD_KIND_I32:
		return value_int(field->value.i32);
	case AMQP_FIELD_KIND_U32:
		return value_int(field->value.u32);
	case AMQP_FIELD_KIND_I64:
		return value_int(field->value.i64);
	case AMQP_FIELD_KIND_U64:
	case AMQP_FIELD_KIND_TIMESTAMP:
		return unsigned_read(arena, field->value.u64);
	case AMQP_FIELD_KIND_F32:
		return value_double((double)field->value.f32);
	case AMQP_FIELD_KIND_F64:
		return value_double(field->value.f64);
	case AMQP_FIELD_KIND_DECIMAL:
		return decimal_read(arena, field->value.decimal);
	case AMQP_FIELD_KIND_UTF8:
		return text_read(arena, field->value.bytes);
	case AMQP_FIELD_KIND_BYTES:
		return value_bytes(arena_str(arena, rabbit_str(field->value.bytes)));
	case AMQP_FIELD_KIND_ARRAY:
		return array_read(arena, &field->value.array, depth + 1);
	case AMQP_FIELD_KIND_TABLE:
		return map_read(arena, &field->value.table, depth + 1);
	case AMQP_FIELD_KIND_VOID:
		break;
	}
	return value_nil();
}

struct header_list table_read(struct arena *arena, const amqp_table_t *table)
{
	size_t count = table->num_entries > 0 ? (size_t)table->num_entries : 0;
	struct header_list headers = {NULL, count};

	if (count)
		headers.items = arena_alloc(arena, count * sizeof(*headers.items));
	for (size_t i = 0; i < count; i++) {
		headers.items[i].name = arena_str(arena, rabbit_str(table->entries[i].key));
		headers.items[i].value = field_read(arena, &table->entries[i].value, 0);
	}
	return headers;
}

/* --- out --- */

static amqp_field_value_t field_write(struct arena *arena, const msgpack_object *value);

static amqp_array_t array_write(struct arena *arena, const msgpack_object *value)
{
	uint32_t count = value->via.array.size;
	amqp_array_t array = {(int)count, arena_alloc(arena, count * sizeof(amqp_field_value_t) + 1)};

	for (uint32_t i = 0; i < count; i++)
		array.entries[i] = field_write(arena, &value->via.array.ptr[i]);
	return array;
}

static amqp_table_t map_write(struct arena *arena, const msgpack_object *value)
{
	uint32_t count = value->via.map.size;
	amqp_table_t table = {(int)count, arena_alloc(arena, count * sizeof(amqp_table_entry_t) + 1)};

	for (uint32_t i = 0; i < count; i++) {
		table.entries[i].key = rabbit_bytes(value_as_str(&value->via.map.ptr[i].key));
		table.entries[i].value = field_write(arena, &value->via.map.ptr[i].val);
	}
	return table;
}

static amqp_field_value_t field_write(struct arena *arena, const msgpack_object *value)
{
	amqp_field_value_t field = {.kind = AMQP_FIELD_KIND_VOID};
	int64_t number;

	if (value_as_int(value, &number)) {
		field.kind = AMQP_FIELD_KIND_I64;
		field.value.i64 = number;
		return field;
	}
	switch (value->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		field.kind = AMQP_FIELD_KIND_BOOLEAN;
		field.value.boolean = value->via.boolean;
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		field.kind = AMQP_FIELD_KIND_F64;
		field.value.f64 = value->via.f64;
		break;
	case MSGPACK_OBJECT_STR:
		field.kind = AMQP_FIELD_KIND_UTF8;
		field.value.bytes = rabbit_bytes(value_as_str(value));
		break;
	case MSGPACK_OBJECT_BIN:
		field.kind = AMQP_FIELD_KIND_BYTES;
		field.value.bytes = rabbit_bytes(value_as_str(value));
		break;
	case MSGPACK_OBJECT_ARRAY:
		field.kind = AMQP_FIELD_KIND_ARRAY;
		field.value.array = array_write(arena, value);
		break;
	case MSGPACK_OBJECT_MAP:
		field.kind = AMQP_FIELD_KIND_TABLE;
		field.value.table = map_write(arena, value);
		break;
	default:
		break;
	}
	return field;
}

/* Whether a later header has the same name. Names of AMQP differ by case. */
static bool is_repeated(const struct header_list *headers, size_t at)
{
	for (size_t i = at + 1; i < headers->count; i++)
		if (str_equal(headers->items[i].name, headers->items[at].name))
			return true;
	return false;
}

amqp_table_t table_write(struct arena *arena, const struct header_list *headers)
{
	amqp_table_t table = {0, arena_alloc(arena, headers->count * sizeof(amqp_table_entry_t) + 1)};

	for (size_t i = 0; i < headers->count; i++) {
		amqp_table_entry_t *entry = &table.entries[table.num_entries];

		if (is_repeated(headers, i))
			continue;
		entry->key = rabbit_bytes(headers->items[i].name);
		entry->value = field_write(arena, &headers->items[i].value);
		table.num_entries++;
	}
	return table;
}
