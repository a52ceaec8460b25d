/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of diagnostic codes and the making of errors. Texts are formatted beside the error before they are put
 * into it, since an argument may well be the old text.
 */
#include "base/error.h"

#include <stdio.h>

static const struct code_info code_table[CODE_COUNT] = {
	[CODE_NONE] = {"", SEVERITY_INFO, "", ""},
#define CODE(name, text, severity, meaning, action) \
	[CODE_##name] = {text, SEVERITY_##severity, meaning, action},
#include "base/codes.def"
#undef CODE
};

const struct code_info *code_info(enum code code)
{
	assert(code >= CODE_NONE && code < CODE_COUNT);
	return &code_table[code];
}

const char *code_text(enum code code)
{
	return code_info(code)->text;
}

enum code code_find(struct str text)
{
	for (int code = CODE_NONE + 1; code < CODE_COUNT; code++)
		if (str_equal(str_of(code_table[code].text), text))
			return (enum code)code;
	return CODE_NONE;
}

/* Copies `text` and cuts it to fit, in front of a character that would be broken. */
static void put_text(struct error *err, const char *text, size_t len)
{
	size_t keep = len;

	if (keep > sizeof(err->text) - 1) {
		keep = sizeof(err->text) - 1;
		while (keep && ((unsigned char)text[keep] & 0xc0) == 0x80)
			keep--;
	}
	memcpy(err->text, text, keep);
	err->text[keep] = '\0';
}

/* As vsnprintf, but returns how much stands in `text`. */
static size_t format(char *text, size_t size, const char *fmt, va_list ap) PRINTF_LIKE(3, 0);
static size_t format(char *text, size_t size, const char *fmt, va_list ap)
{
	int len = vsnprintf(text, size, fmt, ap);

	if (len < 0) {
		text[0] = '\0';
		return 0;
	}
	return (size_t)len < size ? (size_t)len : size - 1;
}

enum result error_vset(struct error *err, enum result what, enum code code, const char *fmt, va_list ap)
{
	/* Longer than the error, so that the cut sees the byte behind it. */
	char text[sizeof(err->text) + 8];
	size_t len;

	if (!err)
		return what;
	len = format(text, sizeof(text), fmt, ap);
	err->what = what;
	err->code = code;
	put_text(err, text, len);
	return what;
}

enum result error_set(struct error *err, enum result what, enum code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	error_vset(err, what, code, fmt, ap);
	va_end(ap);
	return what;
}

enum result error_prefix(struct error *err, const char *fmt, ...)
{
	/* Room for a prefix longer than the error, so that a cut in it falls behind the one of put_text. */
	char text[2 * sizeof(err->text) + 8];
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	len = format(text, sizeof(err->text) + 6, fmt, ap);
	va_end(ap);
	len += (size_t)snprintf(text + len, sizeof(text) - len, ": %s", err->text);
	put_text(err, text, len);
	return err->what;
}
