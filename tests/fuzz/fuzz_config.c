/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration from any bytes: a file text up to the first NUL, behind it environment entries that end with NUL.
 * What loads is printed, which also walks all of it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "config/config.h"

#define ENTRIES_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* On a syntax error libconfig 1.5 forgets the text it was putting together; its tree is not covered by this. */
const char *__lsan_default_suppressions(void)
{
	return "leak:strbuf_append\nleak:libconfig_yylex\n";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config_findings findings = {.text = BUF_INIT};
	char *bytes = mem_alloc(size + 1);
	char *environ_[ENTRIES_MAX + 1] = {NULL};
	struct config *config = NULL;
	size_t text_len, count = 0;

	if (size)
		memcpy(bytes, data, size);
	bytes[size] = '\0';
	text_len = strlen(bytes);
	for (size_t at = text_len + 1; at < size && count < ENTRIES_MAX;
	     at += strlen(bytes + at) + 1)
		environ_[count++] = bytes + at;
	if (config_load_text("fuzz", str_make(bytes, text_len), environ_, &config, &findings) ==
	    RESULT_OK) {
		FILE *null = fopen("/dev/null", "w");

		assert(findings.errors == 0);
		config_print(config, false, null);
		config_print(config, true, null);
		fclose(null);
	} else {
		assert(findings.errors > 0 && findings.text.len > 0);
	}
	config_free(&config);
	buf_done(&findings.text);
	free(bytes);
	return 0;
}
