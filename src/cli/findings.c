/* SPDX-License-Identifier: Apache-2.0 */
/* Prints findings with the package's path in front. */
#include "cli/findings.h"

#include <string.h>

void findings_print(const struct findings *findings, const char *path, FILE *out)
{
	struct str rest = {findings->text.data, findings->text.len};
	size_t len = strlen(path);
	unsigned shown = 0, all = findings->errors + findings->warnings;

	while (len > 1 && path[len - 1] == '/')
		len--;
	while (rest.len) {
		ptrdiff_t end = str_find(rest, '\n');
		size_t line = end < 0 ? rest.len : (size_t)end;

		/* What is about the package as a whole begins with the code or with the path itself. */
		if (line >= len && memcmp(rest.ptr, path, len) == 0 && rest.ptr[len] == ':')
			fprintf(out, "%.*s\n", (int)line, rest.ptr);
		else
			fprintf(out, "%.*s%s%.*s\n", (int)len, path,
				memcmp(rest.ptr, "SUTRA.", line < 6 ? line : 6) == 0 ? ": " : "/",
				(int)line, rest.ptr);
		rest.ptr += line + (end >= 0);
		rest.len -= line + (end >= 0);
		shown++;
	}
	if (shown < all)
		fprintf(out, "%.*s: and %u more\n", (int)len, path, all - shown);
}
