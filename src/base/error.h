/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results and errors. An error says what the caller is to do, and carries a code of codes.def, a text for people and
 * the stage it arose in.
 *
 * Life cycle: a struct error is plain data on the caller's stack; ERROR_INIT. Threads: none.
 */
#ifndef SUTRA_BASE_ERROR_H
#define SUTRA_BASE_ERROR_H

#include <stdarg.h>

#include "base/attr.h"
#include "base/str.h"

/* What to do. */
enum result {
	RESULT_OK = 0,
	RESULT_AGAIN,	/* transient: the same call may succeed later (a dead database, a full queue) */
	RESULT_REFUSED, /* somebody else holds the claim; nothing was written */
	RESULT_REJECT,	/* this input can never succeed */
	RESULT_FATAL,	/* the component cannot go on */
};

/* Diagnostic codes: one enumerator per line of codes.def. */
enum code {
	CODE_NONE = 0,
#define CODE(name, text, severity, meaning, action) CODE_##name,
#include "base/codes.def"
#undef CODE
	CODE_COUNT
};

enum severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_ERROR };

struct code_info {
	const char *text; /* "SUTRA.INBOUND.PAYLOAD_TOO_LARGE" */
	enum severity severity;
	const char *meaning;
	const char *action;
};

struct error {
	enum result what;
	enum code code;
	const char *stage; /* a stage word of the path (docs/architecture.md) or NULL; static */
	char text[480];
};

#define ERROR_INIT ((struct error){RESULT_OK, CODE_NONE, NULL, ""})

/* The row of the table. CODE_NONE has the text "". */
const struct code_info *code_info(enum code code);
/* Its text, "SUTRA.…". */
const char *code_text(enum code code);
/* The code with this text, or CODE_NONE. */
enum code code_find(struct str text);

/*
 * Fills `err` (may be NULL) and returns `what`, so that `return error_set(err, RESULT_REJECT, CODE_X, "…")` is the
 * whole of an error path. The text is cut to fit, at a UTF-8 boundary.
 */
enum result error_set(struct error *err, enum result what, enum code code, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
enum result error_vset(struct error *err, enum result what, enum code code, const char *fmt, va_list ap)
	PRINTF_LIKE(4, 0);
/* Puts "prefix: " before the text, for the caller who knows file or element. Returns err->what. */
enum result error_prefix(struct error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
