/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of an expression when a package is loaded, so that a misspelt name is found before a message meets it.
 *
 * Lua's own compiler judges the syntax. It names a line and the token it stumbled over; the column is found by lexing that
 * line. Source that compiles is then walked by a small parser that only follows scopes: which names are locals where, and
 * which are looked up in the environment. It may rely on the syntax being right, and on the nesting that the compiler
 * allows (200 levels) for its own recursion; should the two ever disagree, that is a finding.
 */
#include "value/expression.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "value/expression_lexer.h"

#define MAX_SOURCE         ((size_t)1 << 20)
#define MAX_COMPILE_MEMORY ((size_t)256 << 20)
/* Prefixes compiled to find which of several equal tokens on a line is the wrong one. */
#define MAX_TRIALS 50

struct checker {
	struct str source;
	enum expression_kind kind;
	const struct str *names, *assignable;
	size_t name_count, assignable_count;
	struct expression_finding *findings;
	size_t max, count;
	struct expression_token token;
	struct str *locals;
	size_t local_count, local_cap;
	bool lost;
};

/* The library as the check knows it: top-level names, and the members of those that are tables. */
static const struct {
	const char *name, *members; /* NULL: a function */
} library[] = {
	{"all", NULL},
	{"any", NULL},
	{"base64", NULL},
	{"duration", NULL},
	{"error", NULL},
	{"filter", NULL},
	{"find", NULL},
	{"ipairs", NULL},
	{"join", NULL},
	{"json", " decode encode "},
	{"keys", NULL},
	{"len", NULL},
	{"list", NULL},
	{"map", NULL},
	{"math", " abs acos asin atan ceil cos deg exp floor fmod huge log max maxinteger min "
		 "mininteger modf pi rad"
		 " sin sqrt tan tointeger type ult "},
	{"merge", NULL},
	{"now", NULL},
	{"pairs", NULL},
	{"pcall", NULL},
	{"select", NULL},
	{"sha256", NULL},
	{"string", " byte char find format gmatch gsub len lower match pack packsize rep reverse "
		   "sub unpack upper "},
	{"sum", NULL},
	{"table", " concat insert move pack remove sort unpack "},
	{"tonumber", NULL},
	{"tostring", NULL},
	{"type", NULL},
	{"utf8", " char charpattern codepoint codes len offset "},
	{"uuid", NULL},
};

static const char *const fixed_names[] = {"event", "header",  "instance",
					  "null",  "process", "tenant"};

static void PRINTF_LIKE(3, 4) report(struct checker *c, const char *at, const char *fmt, ...)
{
	struct expression_finding *finding = &c->findings[c->count];
	va_list ap;

	if (c->count++ >= c->max)
		return;
	expression_position(c->source, (size_t)(at - c->source.ptr), &finding->line,
			    &finding->column);
	va_start(ap, fmt);
	vsnprintf(finding->text, sizeof(finding->text), fmt, ap);
	va_end(ap);
}

/* Names. */

static bool list_has(const struct str *list, size_t count, struct str name)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(list[i], name))
			return true;
	return false;
}

static bool is_local(const struct checker *c, struct str name)
{
	return list_has(c->locals, c->local_count, name);
}

static bool is_variable(const struct checker *c, struct str name)
{
	return list_has(c->names, c->name_count, name) ||
	       list_has(c->assignable, c->assignable_count, name);
}

static bool is_fixed(struct str name)
{
	for (size_t i = 0; i < ARRAY_LEN(fixed_names); i++)
		if (str_equal(name, str_of(fixed_names[i])))
			return true;
	return false;
}

/* Position in the library, or -1. */
static ptrdiff_t library_find(struct str name)
{
	for (size_t i = 0; i < ARRAY_LEN(library); i++)
		if (str_equal(name, str_of(library[i].name)))
			return (ptrdiff_t)i;
	return -1;
}

static bool members_have(const char *members, struct str name)
{
	char word[40];

	snprintf(word, sizeof(word), " %.*s ", STR_ARG(name));
	return name.len < sizeof(word) - 2 && strstr(members, word);
}

static void check_read(struct checker *c, struct str name)
{
	if (!is_local(c, name) && !is_variable(c, name) && !is_fixed(name) &&
	    library_find(name) < 0)
		report(c, name.ptr, "unknown name '%.*s'", STR_ARG(name));
}

static void check_member(struct checker *c, struct str name, struct str member)
{
	ptrdiff_t at = library_find(name);

	if (at < 0 || is_local(c, name) || is_variable(c, name) || is_fixed(name) ||
	    !library[at].members)
		return;
	if (!members_have(library[at].members, member))
		report(c, member.ptr, "unknown name '%.*s.%.*s'", STR_ARG(name), STR_ARG(member));
}

static void check_assign(struct checker *c, struct str name)
{
	if (is_local(c, name))
		return;
	if (c->kind == EXPRESSION_VALUE)
		report(c, name.ptr, "an expression cannot assign to '%.*s'", STR_ARG(name));
	else if (!list_has(c->assignable, c->assignable_count, name))
		report(c, name.ptr,
		       "'%.*s' is not a variable that can be assigned; declare it, or make it "
		       "local",
		       STR_ARG(name));
}

/* A field of the name is assigned: what the message or the library holds is read-only. */
static void check_assign_field(struct checker *c, struct str name)
{
	if (!is_local(c, name) &&
	    (c->kind == EXPRESSION_VALUE || !list_has(c->assignable, c->assignable_count, name)))
		report(c, name.ptr, "'%.*s' is read-only", STR_ARG(name));
}

static void local_add(struct checker *c, struct str name)
{
	/* It would turn every name behind it into something else. */
	if (str_equal(name, STR("_ENV")))
		report(c, name.ptr, "'_ENV' is reserved");
	if (c->local_count == c->local_cap) {
		c->local_cap = c->local_cap ? 2 * c->local_cap : 16;
		c->locals = mem_array(c->locals, c->local_cap, sizeof(*c->locals));
	}
	c->locals[c->local_count++] = name;
}

/* Tokens. */

/* The walk and the compiler disagree. Every loop ends at the end of the source, so this ends the walk. */
static void lose(struct checker *c)
{
	c->lost = true;
	c->token.kind = TOKEN_END;
	c->token.text = str_make(c->source.ptr + c->source.len, 0);
}

static void advance(struct checker *c)
{
	c->token = expression_token_next(
		c->source, (size_t)(c->token.text.ptr + c->token.text.len - c->source.ptr));
	if (c->token.kind == TOKEN_BROKEN)
		lose(c);
}

static bool at(const struct checker *c, const char *text)
{
	return (c->token.kind == TOKEN_OPERATOR || c->token.kind == TOKEN_NAME) &&
	       str_equal(c->token.text, str_of(text));
}

static bool take(struct checker *c, const char *text)
{
	if (!at(c, text))
		return false;
	advance(c);
	return true;
}

static void expect(struct checker *c, const char *text)
{
	if (!take(c, text))
		lose(c);
}

static struct str take_name(struct checker *c)
{
	struct str name = c->token.text;

	if (c->token.kind == TOKEN_NAME)
		advance(c);
	else
		lose(c);
	return name;
}

/* Expressions. */

static void walk_expression(struct checker *c);
static void walk_block(struct checker *c);

static size_t walk_expressions(struct checker *c)
{
	size_t count = 1;

	walk_expression(c);
	while (take(c, ",")) {
		walk_expression(c);
		count++;
	}
	return count;
}

/* From the parameters to `end`. */
static void walk_function(struct checker *c, bool method)
{
	size_t mark = c->local_count;

	if (method)
		local_add(c, STR("self"));
	expect(c, "(");
	while (!take(c, ")") && !c->lost) {
		if (c->token.kind == TOKEN_NAME)
			local_add(c, c->token.text);
		advance(c);
	}
	walk_block(c);
	expect(c, "end");
	c->local_count = mark;
}

static bool at_field_name(const struct checker *c)
{
	struct expression_token next;

	if (c->token.kind != TOKEN_NAME || expression_is_keyword(c->token.text))
		return false;
	next = expression_token_next(
		c->source, (size_t)(c->token.text.ptr + c->token.text.len - c->source.ptr));
	return next.kind == TOKEN_OPERATOR && str_equal(next.text, STR("="));
}

static void walk_table(struct checker *c)
{
	expect(c, "{");
	while (!take(c, "}") && !c->lost) {
		if (take(c, "[")) {
			walk_expression(c);
			expect(c, "]");
			expect(c, "=");
		} else if (at_field_name(c)) {
			advance(c);
			expect(c, "=");
		}
		walk_expression(c);
		if (!take(c, ","))
			take(c, ";");
	}
}

static bool walk_arguments(struct checker *c)
{
	if (c->token.kind == TOKEN_STRING) {
		advance(c);
		return true;
	}
	if (at(c, "{")) {
		walk_table(c);
		return true;
	}
	if (!take(c, "("))
		return false;
	if (!at(c, ")"))
		walk_expressions(c);
	expect(c, ")");
	return true;
}

/* What stands before an assignment or a call. */
struct prefix {
	struct str name; /* it begins with; none in parentheses */
	bool bare;       /* it is the name alone, and has not been reported as read */
	bool called;     /* a call is in it, so it denotes some other table */
};

static void prefix_extend(struct checker *c, struct prefix *prefix)
{
	if (prefix->bare)
		check_read(c, prefix->name);
	prefix->bare = false;
}

static struct prefix walk_prefix(struct checker *c)
{
	struct prefix prefix = {STR_NONE, false, false};

	if (take(c, "(")) {
		walk_expression(c);
		expect(c, ")");
	} else {
		prefix.name = take_name(c);
		prefix.bare = true;
	}
	for (;;) {
		bool first = prefix.bare;

		if (take(c, ".")) {
			prefix_extend(c, &prefix);
			if (first)
				check_member(c, prefix.name, c->token.text);
			take_name(c);
		} else if (take(c, "[")) {
			prefix_extend(c, &prefix);
			walk_expression(c);
			expect(c, "]");
		} else if (take(c, ":")) {
			prefix_extend(c, &prefix);
			take_name(c);
			prefix.called = walk_arguments(c);
		} else if (c->token.kind == TOKEN_STRING || at(c, "(") || at(c, "{")) {
			prefix_extend(c, &prefix);
			prefix.called = walk_arguments(c);
		} else {
			return prefix;
		}
	}
}

static void walk_operand(struct checker *c)
{
	struct prefix prefix;

	while (at(c, "not") || at(c, "-") || at(c, "#") || at(c, "~"))
		advance(c);
	if (c->token.kind == TOKEN_NUMBER || c->token.kind == TOKEN_STRING || at(c, "nil") ||
	    at(c, "true") || at(c, "false") || at(c, "...")) {
		advance(c);
	} else if (at(c, "{")) {
		walk_table(c);
	} else if (take(c, "function")) {
		walk_function(c, false);
	} else {
		prefix = walk_prefix(c);
		if (prefix.bare)
			check_read(c, prefix.name);
	}
}

static bool take_binary(struct checker *c)
{
	static const char *const operators[] = {
		"+",  "-", "*",  "/",   "//", "%", "^", "..", "==", "~=", "<",
		"<=", ">", ">=", "and", "or", "&", "|", "~",  "<<", ">>",
	};

	for (size_t i = 0; i < ARRAY_LEN(operators); i++)
		if (take(c, operators[i]))
			return true;
	return false;
}

static void walk_expression(struct checker *c)
{
	do {
		walk_operand(c);
	} while (take_binary(c));
}

/* Statements. */

static void walk_if(struct checker *c)
{
	do {
		walk_expression(c);
		expect(c, "then");
		walk_block(c);
	} while (take(c, "elseif"));
	if (take(c, "else"))
		walk_block(c);
	expect(c, "end");
}

static void walk_for(struct checker *c)
{
	struct expression_token names = c->token;
	size_t mark = c->local_count;

	do
		take_name(c);
	while (take(c, ","));
	advance(c); /* '=' or 'in' */
	walk_expressions(c);
	expect(c, "do");
	/* The names are in scope only now: the expressions before are outside of the loop. */
	while (!c->lost && !str_equal(names.text, STR("=")) && !str_equal(names.text, STR("in"))) {
		if (names.kind == TOKEN_NAME)
			local_add(c, names.text);
		names = expression_token_next(
			c->source, (size_t)(names.text.ptr + names.text.len - c->source.ptr));
	}
	walk_block(c);
	expect(c, "end");
	c->local_count = mark;
}

static void walk_statements(struct checker *c);

static void walk_repeat(struct checker *c)
{
	size_t mark = c->local_count;

	/* The condition sees the locals of the body. */
	walk_statements(c);
	expect(c, "until");
	walk_expression(c);
	c->local_count = mark;
}

static void walk_local(struct checker *c)
{
	struct str names[256];
	size_t count = 0;

	if (take(c, "function")) {
		local_add(c, take_name(c));
		walk_function(c, false);
		return;
	}
	do {
		if (count == ARRAY_LEN(names)) { /* Lua allows 200. */
			lose(c);
			return;
		}
		names[count++] = take_name(c);
		if (take(c, "<")) {
			take_name(c);
			expect(c, ">");
		}
	} while (take(c, ","));
	if (take(c, "="))
		walk_expressions(c);
	for (size_t i = 0; i < count; i++)
		local_add(c, names[i]);
}

/* function a.b:c() … end */
static void walk_function_statement(struct checker *c)
{
	struct str name = take_name(c);
	bool field = false, method = false;

	while (at(c, ".") || at(c, ":")) {
		method = at(c, ":");
		field = true;
		advance(c);
		take_name(c);
	}
	if (field)
		check_assign_field(c, name);
	else
		check_assign(c, name);
	walk_function(c, method);
}

static void walk_assignment(struct checker *c)
{
	struct prefix prefix;

	do {
		prefix = walk_prefix(c);
		if (!at(c, "=") && !at(c, ",")) {
			if (!prefix.called)
				lose(c);
			return;
		}
		if (prefix.bare)
			check_assign(c, prefix.name);
		else if (prefix.name.ptr && !prefix.called)
			check_assign_field(c, prefix.name);
	} while (take(c, ","));
	expect(c, "=");
	walk_expressions(c);
}

static void walk_statement(struct checker *c)
{
	if (take(c, ";") || take(c, "break"))
		return;
	if (take(c, "::")) {
		take_name(c);
		expect(c, "::");
	} else if (take(c, "do")) {
		walk_block(c);
		expect(c, "end");
	} else if (take(c, "while")) {
		walk_expression(c);
		expect(c, "do");
		walk_block(c);
		expect(c, "end");
	} else if (take(c, "if")) {
		walk_if(c);
	} else if (take(c, "for")) {
		walk_for(c);
	} else if (take(c, "repeat")) {
		walk_repeat(c);
	} else if (take(c, "local")) {
		walk_local(c);
	} else if (take(c, "function")) {
		walk_function_statement(c);
	} else if (take(c, "goto")) {
		take_name(c);
	} else {
		walk_assignment(c);
	}
}

static bool at_block_end(const struct checker *c)
{
	return c->token.kind == TOKEN_END || at(c, "end") || at(c, "else") || at(c, "elseif") ||
	       at(c, "until");
}

static void walk_statements(struct checker *c)
{
	while (!at_block_end(c)) {
		if (!take(c, "return")) {
			walk_statement(c);
			continue;
		}
		if (!at_block_end(c) && !at(c, ";"))
			walk_expressions(c);
		take(c, ";");
		return;
	}
}

static void walk_block(struct checker *c)
{
	size_t mark = c->local_count;

	walk_statements(c);
	c->local_count = mark;
}

/* Syntax. */

static void *compile_alloc(void *arg, void *ptr, size_t old_size, size_t new_size)
{
	size_t *used = arg;
	void *new;

	if (!ptr)
		old_size = 0;
	if (new_size == 0) {
		free(ptr);
		*used -= old_size;
		return NULL;
	}
	if (new_size > old_size && new_size - old_size > MAX_COMPILE_MEMORY - *used)
		return NULL;
	new = realloc(ptr, new_size);
	if (!new)
		return new_size <= old_size ? ptr : NULL;
	*used += new_size - old_size;
	return new;
}

struct compile_reader {
	struct str pieces[2];
	int next;
};

static const char *compile_read(lua_State *L, void *arg, size_t *len)
{
	struct compile_reader *reader = arg;

	(void)L;
	while (reader->next < 2) {
		struct str piece = reader->pieces[reader->next++];

		if (!piece.len)
			continue;
		*len = piece.len;
		return piece.ptr;
	}
	*len = 0;
	return NULL;
}

/* Compiles the first `len` bytes; true if they are right, else `message` has what Lua says, "x:LINE: …". */
static bool compiles(const struct checker *c, lua_State *L, size_t len, char *message, size_t size)
{
	struct compile_reader reader = {{c->kind == EXPRESSION_VALUE ? STR("return ") : STR(""),
					 str_make(c->source.ptr, len)},
					0};
	int status = lua_load(L, compile_read, &reader, "=x", "t");

	if (status != LUA_OK)
		snprintf(message, size, "%s",
			 lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?");
	lua_settop(L, 0);
	return status == LUA_OK;
}

/*
 * Where in `line` the token stands that Lua named, or the beginning of the line. Of several equal ones it is the first up
 * to which the source gives the same message.
 */
static const char *find_place(const struct checker *c, lua_State *L, int line, struct str near,
			      const char *message)
{
	struct expression_token token = {TOKEN_OPERATOR, str_make(c->source.ptr, 0)};
	const char *found = NULL, *first = c->source.ptr;
	char trial[512];
	int at_line, column, trials = 0;

	do {
		size_t end;

		token = expression_token_next(
			c->source, (size_t)(token.text.ptr + token.text.len - c->source.ptr));
		end = (size_t)(token.text.ptr + token.text.len - c->source.ptr);
		/* The line that Lua has in mind is the one on which a token ends. */
		expression_position(c->source, end, &at_line, &column);
		if (at_line < line)
			continue;
		if (at_line > line)
			break;
		if (first == c->source.ptr)
			first = token.text.ptr;
		if (token.kind == TOKEN_BROKEN && !found)
			return token.text.ptr;
		if (!str_equal(token.text, near))
			continue;
		found = token.text.ptr;
		if (++trials > MAX_TRIALS ||
		    (!compiles(c, L, end, trial, sizeof(trial)) && strcmp(trial, message) == 0))
			break;
	} while (token.kind != TOKEN_END && token.kind != TOKEN_BROKEN);
	return found ? found : first;
}

static void report_syntax(struct checker *c, lua_State *L, const char *message)
{
	const char *text = message, *near = strstr(message, " near "), *place = c->source.ptr,
		   *next;
	struct str token = STR_NONE;
	int64_t line = 1;

	if (strncmp(message, "x:", 2) == 0) {
		const char *end = strchr(message + 2, ':');

		if (end && str_to_int64(str_make(message + 2, (size_t)(end - message - 2)), &line))
			text = end + (end[1] == ' ' ? 2 : 1);
	}
	/* The last one: the token itself may hold the word. */
	while (near && (next = strstr(near + 1, " near ")))
		near = next;
	if (near && strcmp(near, " near <eof>") == 0) {
		place = c->source.ptr + c->source.len;
	} else {
		if (near && near[6] == '\'' && strlen(near) >= 8)
			token = str_make(near + 7, strlen(near) - 8);
		place = find_place(c, L, (int)line, token, message);
	}
	report(c, place, "%s", text);
}

static bool check_syntax(struct checker *c)
{
	size_t used = 0;
	char message[512];
	lua_State *L = lua_newstate(compile_alloc, &used);
	bool right;

	assert(L);
	right = compiles(c, L, c->source.len, message, sizeof(message));
	if (!right)
		report_syntax(c, L, message);
	lua_close(L);
	return right;
}

static void check_names(struct checker *c)
{
	c->token = expression_token_next(c->source, 0);
	if (c->token.kind == TOKEN_BROKEN)
		lose(c);
	if (c->kind == EXPRESSION_SCRIPT) {
		walk_block(c);
	} else if (c->token.kind == TOKEN_END || at(c, ";")) {
		report(c, c->source.ptr, "an expression is missing");
		return;
	} else {
		if (walk_expressions(c) > 1)
			report(c, c->source.ptr,
			       "an expression gives one value; put several into a table");
		take(c, ";");
	}
	if (c->lost || c->token.kind != TOKEN_END)
		report(c, c->source.ptr, "this expression cannot be checked; write it more simply");
}

size_t expression_check(const struct expression *expr, const struct str *names, size_t name_count,
			const struct str *assignable, size_t assignable_count,
			struct expression_finding *findings, size_t max)
{
	struct checker c = {
		.source = expr->source.ptr ? expr->source : STR(""),
		.kind = expr->kind,
		.names = names,
		.name_count = name_count,
		.assignable = assignable,
		.assignable_count = assignable_count,
		.findings = findings,
		.max = max,
	};

	if (c.source.len > MAX_SOURCE)
		report(&c, c.source.ptr, "an expression longer than 1 MiB");
	else if (!str_is_utf8(c.source))
		report(&c, c.source.ptr, "an expression that is not UTF-8");
	else if (check_syntax(&c))
		check_names(&c);
	free(c.locals);
	return c.count;
}
