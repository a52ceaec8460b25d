/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of Lua 5.4 source, for the check at load. Private to src/value.
 *
 * Life cycle: plain data over the source, which it borrows. Threads: pure functions.
 */
#ifndef SUTRA_VALUE_EXPRESSION_LEXER_H
#define SUTRA_VALUE_EXPRESSION_LEXER_H

#include "base/str.h"

enum expression_token_kind {
	TOKEN_END,
	TOKEN_NAME, /* keywords too */
	TOKEN_NUMBER,
	TOKEN_STRING,
	TOKEN_OPERATOR,
	TOKEN_BROKEN, /* no token of Lua begins here, or it does not end */
};

struct expression_token {
	enum expression_token_kind kind;
	struct str text; /* as it stands in the source */
};

/* The first token at or behind `at`; after TOKEN_END and TOKEN_BROKEN there is none. */
struct expression_token expression_token_next(struct str source, size_t at);
/* Line and column, from 1, of a position in the source; columns count characters. */
void expression_position(struct str source, size_t at, int *line, int *column);
bool expression_is_keyword(struct str name);

#endif
