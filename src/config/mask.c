/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be shown of a value. References are shown as written; a credential that stands literally somewhere is shown
 * as "***", whatever its length.
 */
#include <strings.h>

#include "config/private.h"

#define MASK "***"

bool property_is_secret(const char *name)
{
	/* Of librdkafka's properties those that hold credentials have one of these in their name. */
	static const char *const marks[] = {"password", "secret", "key.pem", "oauthbearer.config",
					    "jaas"};

	for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
		if (strcasestr(name, marks[i]))
			return true;
	}
	return false;
}

/* Copies a "name=value" or "name = 'value'" text from `at`, masking the value; returns what is behind it. */
static const char *parameter_mask(const char *at, struct buf *out)
{
	const char *value = strchr(at, '=') + 1;

	while (*value == ' ')
		value++;
	buf_add(out, at, (size_t)(value - at));
	buf_add_text(out, MASK);
	if (*value == '\'') {
		for (value++; *value && *value != '\''; value++) {
			if (*value == '\\' && value[1])
				value++;
		}
		return *value ? value + 1 : value;
	}
	while (*value && !strchr("& \t\n", *value)) {
		if (*value == '\\' && value[1])
			value++;
		value++;
	}
	return value;
}

/* Whether a parameter "…password… =" begins here. */
static bool at_password(const char *at)
{
	static const char *const names[] = {"password", "sslpassword", "passwd", "pwd"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t len = strlen(names[i]);

		if (strncasecmp(at, names[i], len) == 0 && at[len + strspn(at + len, " ")] == '=')
			return true;
	}
	return false;
}

void url_show(const char *url, struct buf *out)
{
	const char *scheme = strstr(url, "://");
	const char *at = url;

	if (scheme) {
		const char *start = scheme + 3;
		/* The last @ before the path: passwords may hold one by mistake. */
		size_t authority = strcspn(start, "/?#");
		const char *end = memrchr(start, '@', authority);
		const char *colon;

		/* A raw slash in a password moves the end of the authority behind the real one. */
		if (!end)
			end = strrchr(start, '@');
		colon = end ? memchr(start, ':', (size_t)(end - start)) : NULL;
		if (colon) {
			buf_add(out, url, (size_t)(colon - url) + 1);
			buf_add_text(out, MASK);
			at = end;
		}
	}
	while (*at) {
		bool begins = at == url || strchr("?& \t\n", at[-1]);

		if (begins && at_password(at))
			at = parameter_mask(at, out);
		else
			buf_add_byte(out, *at++);
	}
}

void value_show(const struct option_spec *spec, const struct value *value, struct buf *out)
{
	if (is_reference(value->raw) || (spec->type != OPTION_SECRET && spec->type != OPTION_URL))
		buf_add_text(out, value->raw);
	else if (spec->type == OPTION_SECRET)
		buf_add_text(out, MASK);
	else
		url_show(value->raw, out);
}
