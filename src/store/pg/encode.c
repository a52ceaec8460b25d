/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL's binary formats: parameters out, results in. An array is a header (dimensions, whether there are NULLs, type of
 * the elements), length and lower bound of its one dimension, then each element behind its length, all big endian. Times
 * are microseconds since 2000. Nothing is escaped, so no text can be more than a value.
 */
#include <endian.h>
#include <limits.h>

#include "base/str.h"
#include "store/pg/private.h"

/* 2000-01-01 in microseconds since 1970. */
#define EPOCH_US (INT64_C(946684800) * 1000000)
/* What the protocol carries in one message is a bit less than 2^30 in practice: the server refuses larger allocations. */
#define PARAM_BYTES_MAX ((size_t)1 << 30)

/* Object ids of the built-in types, which never change. */
struct wire_type {
	char letter;
	Oid scalar;
	Oid array;
};

static const struct wire_type *wire_type(char letter)
{
	static const struct wire_type types[] = {
		{COLUMN_INT, 20, 1016},	 {COLUMN_ID, 2950, 2951},  {COLUMN_TEXT, 25, 1009},
		{COLUMN_BYTES, 17, 1001}, {COLUMN_BOOL, 16, 1000}, {COLUMN_TIME, 1184, 1185},
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (types[i].letter == letter)
			return &types[i];
	assert(!"a letter of enum column_type");
	return NULL;
}

static bool letter_is_scalar(char letter)
{
	return letter < 'a';
}

static char letter_lower(char letter)
{
	return letter_is_scalar(letter) ? (char)(letter + ('a' - 'A')) : letter;
}

void encoded_init(struct encoded *encoded)
{
	memset(encoded, 0, sizeof(*encoded));
}

void encoded_done(struct encoded *encoded)
{
	buf_done(&encoded->bytes);
}

/* --- parameters --- */

static bool value_is_null(const struct column *column, uint32_t i)
{
	switch (column->type) {
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		return !column->strs[i].ptr;
	case COLUMN_TIME:
		return column->ints[i] == COLUMN_TIME_NULL;
	default:
		return false;
	}
}

static void add_value(struct buf *out, const struct column *column, uint32_t i)
{
	switch (column->type) {
	case COLUMN_INT:
		buf_add_be64(out, (uint64_t)column->ints[i]);
		break;
	case COLUMN_TIME:
		buf_add_be64(out, (uint64_t)(column->ints[i] - EPOCH_US));
		break;
	case COLUMN_ID:
		buf_add(out, column->ids[i].bytes, sizeof(column->ids[i].bytes));
		break;
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		buf_add_str(out, column->strs[i]);
		break;
	case COLUMN_BOOL:
		buf_add_byte(out, column->bools[i]);
		break;
	}
}

static size_t value_size(const struct column *column, uint32_t i)
{
	switch (column->type) {
	case COLUMN_ID:
		return 16;
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		return column->strs[i].len;
	case COLUMN_BOOL:
		return 1;
	default:
		return 8;
	}
}

static bool add_array(struct buf *out, const struct column *column, Oid element)
{
	size_t size = 20;
	bool nulls = false;

	for (uint32_t i = 0; i < column->count; i++) {
		size += 4 + value_size(column, i);
		nulls |= value_is_null(column, i);
		if (size > PARAM_BYTES_MAX)
			return false;
	}
	buf_reserve(out, size);
	buf_add_be32(out, column->count ? 1 : 0);
	buf_add_be32(out, nulls);
	buf_add_be32(out, element);
	if (!column->count)
		return true;
	buf_add_be32(out, column->count);
	buf_add_be32(out, 1);
	for (uint32_t i = 0; i < column->count; i++) {
		if (value_is_null(column, i)) {
			buf_add_be32(out, UINT32_MAX);
			continue;
		}
		buf_add_be32(out, (uint32_t)value_size(column, i));
		add_value(out, column, i);
	}
	return true;
}

int encode_types(const char *signature, Oid types[static ENCODE_PARAMS_MAX])
{
	int count = 0;

	for (; signature[count]; count++) {
		const struct wire_type *type = wire_type(letter_lower(signature[count]));

		assert(count < ENCODE_PARAMS_MAX);
		types[count] = letter_is_scalar(signature[count]) ? type->scalar : type->array;
	}
	return count;
}

bool encode_params(struct encoded *encoded, const char *signature, const struct column *params)
{
	struct buf *out = &encoded->bytes;

	encoded->count = encode_types(signature, encoded->types);
	buf_reset(out);
	for (int i = 0; i < encoded->count; i++) {
		const struct column *column = &params[i];
		bool scalar = letter_is_scalar(signature[i]);

		assert(column->type == (enum column_type)letter_lower(signature[i]) && column->scalar == scalar);
		encoded->formats[i] = 1;
		encoded->offsets[i] = out->len;
		if (!scalar) {
			if (!add_array(out, column, wire_type((char)column->type)->scalar))
				return false;
		} else if (value_is_null(column, 0)) {
			encoded->offsets[i] = SIZE_MAX;
		} else if (value_size(column, 0) > PARAM_BYTES_MAX) {
			return false;
		} else {
			add_value(out, column, 0);
		}
		encoded->lengths[i] = encoded->offsets[i] == SIZE_MAX ? 0 : (int)(out->len - encoded->offsets[i]);
		if (out->len > PARAM_BYTES_MAX)
			return false;
	}
	/* The buffer moves while it grows, so pointers are taken at the end. An empty value needs one too. */
	buf_reserve(out, 1);
	for (int i = 0; i < encoded->count; i++)
		encoded->values[i] = encoded->offsets[i] == SIZE_MAX ? NULL : out->data + encoded->offsets[i];
	return true;
}

/* --- results --- */

int64_t decode_int64(const char *bytes)
{
	uint64_t raw;

	memcpy(&raw, bytes, sizeof(raw));
	return (int64_t)be64toh(raw);
}

int64_t decode_time(const char *bytes)
{
	int64_t us = decode_int64(bytes);

	/* "infinity" stays at the end of time. */
	return us > INT64_MAX - EPOCH_US ? INT64_MAX : us == INT64_MIN ? INT64_MIN + 1 : us + EPOCH_US;
}

static bool decode_value(const char *bytes, int len, char letter, char **room, struct field *out)
{
	switch (letter) {
	case COLUMN_INT:
		out->i = len == 8 ? decode_int64(bytes) : 0;
		return len == 8;
	case COLUMN_TIME:
		out->i = len == 8 ? decode_time(bytes) : 0;
		return len == 8;
	case COLUMN_ID:
		if (len == 16)
			memcpy(out->id.bytes, bytes, 16);
		return len == 16;
	case COLUMN_BOOL:
		out->b = len == 1 && bytes[0];
		return len == 1;
	default:
		memcpy(*room, bytes, (size_t)len);
		out->str = str_make(*room, (size_t)len);
		(*room)[len] = '\0';
		*room += len + 1;
		return true;
	}
}

static bool letter_is_long(char letter)
{
	return letter == COLUMN_TEXT || letter == COLUMN_BYTES;
}

/* Bytes that texts need, each with a NUL behind it. */
static size_t room_size(const PGresult *result, const char *signature, int rows)
{
	size_t size = 1;

	for (int column = 0; signature[column]; column++)
		for (int row = 0; letter_is_long(signature[column]) && row < rows; row++)
			size += (size_t)PQgetlength(result, row, column) + 1;
	return size;
}

bool decode_rows(const PGresult *result, const char *signature, struct arena *arena, struct rows *rows)
{
	int row_count = PQntuples(result), column_count = (int)strlen(signature);
	struct field *field;
	char *room;

	*rows = (struct rows){.column_count = (uint32_t)column_count};
	if (!column_count)
		return true;
	if (PQnfields(result) != column_count)
		return false;
	if (!row_count)
		return true;
	field = arena_zalloc(arena, (size_t)row_count * (size_t)column_count * sizeof(*field));
	room = arena_try_alloc(arena, room_size(result, signature, row_count));
	if (!room)
		return false;
	rows->fields = field;
	rows->row_count = (uint32_t)row_count;
	for (int row = 0; row < row_count; row++)
		for (int column = 0; column < column_count; column++, field++) {
			field->is_null = PQgetisnull(result, row, column);
			if (!field->is_null &&
			    !decode_value(PQgetvalue(result, row, column), PQgetlength(result, row, column),
					  signature[column], &room, field))
				return false;
		}
	return true;
}

uint32_t decode_ordinals(const char *detail, struct arena *arena, uint32_t **out)
{
	uint32_t count = 0, commas = 0, value = 0;
	bool digits = false;

	for (const char *at = detail; *at; at++)
		commas += *at == ',';
	*out = arena_alloc(arena, (commas + 1) * sizeof(**out));
	for (const char *at = detail;; at++) {
		if (*at >= '0' && *at <= '9') {
			value = value * 10 + (uint32_t)(*at - '0');
			digits = true;
			continue;
		}
		if (digits)
			(*out)[count++] = value;
		value = 0;
		digits = false;
		if (!*at)
			return count;
	}
}

enum gate decode_gate(const char *reason)
{
	static const struct {
		const char *reason;
		enum gate gate;
	} gates[] = {
		{"fence", GATE_FENCE}, {"duplicate", GATE_DUPLICATE}, {"exists", GATE_EXISTS},
		{"alias", GATE_ALIAS}, {"wait", GATE_WAIT},   {"kept", GATE_KEPT},
		{"schedule", GATE_SCHEDULE}, {"channel_cap", GATE_CHANNEL_CAP}, {"tenant_cap", GATE_TENANT_CAP},
		{"pool", GATE_POOL},
	};

	for (size_t i = 0; i < ARRAY_LEN(gates); i++)
		if (strcmp(gates[i].reason, reason) == 0)
			return gates[i].gate;
	return GATE_NONE;
}
