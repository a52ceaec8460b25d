/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lua's patterns: find, match, gmatch, gsub, as the manual describes them.
 *
 * The matcher backtracks, so a short pattern can take a time exponential in its length; the stock one cannot be stopped
 * while it does. This one counts every comparison as an instruction, and notes them in the budget every few hundred. It
 * recurses for captures and for what may have to be taken back, to a fixed depth.
 */
#include "value/lua_internal.h"

#include <ctype.h>

#define MAX_CAPTURES  32
#define MAX_RECURSION 200
#define STEPS_AT_ONCE 256

enum { CAPTURE_OPEN = -1, CAPTURE_POSITION = -2 };

struct matcher {
	lua_State *lua;
	const char *subject, *subject_end;
	const char *pattern_end;
	uint32_t steps;
	int depth;
	int captures;
	struct {
		const char *start;
		ptrdiff_t len; /* or CAPTURE_… */
	} capture[MAX_CAPTURES];
};

static void steps_flush(struct matcher *m)
{
	uint32_t steps = m->steps;

	m->steps = 0;
	lua_limits_charge(m->lua, steps);
}

static inline void step(struct matcher *m)
{
	if (++m->steps >= STEPS_AT_ONCE)
		steps_flush(m);
}

static const char *match_rest(struct matcher *m, const char *s, const char *p);

/* Behind the set that begins at `p` with '['. A ']' in first place stands for itself. */
static const char *set_end(struct matcher *m, const char *p)
{
	bool first = true;

	p++;
	if (p < m->pattern_end && *p == '^')
		p++;
	for (;; first = false) {
		if (p >= m->pattern_end)
			luaL_error(m->lua, "malformed pattern (missing ']')");
		if (*p == ']' && !first)
			return p + 1;
		if (*p++ == '%') {
			if (p >= m->pattern_end)
				luaL_error(m->lua, "malformed pattern (missing ']')");
			p++;
		}
	}
}

/* Behind the single-character item at `p`. */
static const char *item_end(struct matcher *m, const char *p)
{
	if (*p == '[')
		return set_end(m, p);
	if (*p++ != '%')
		return p;
	if (p >= m->pattern_end)
		luaL_error(m->lua, "malformed pattern (ends with '%%')");
	return p + 1;
}

static bool class_has(char class, unsigned char c)
{
	bool in;

	switch (tolower((unsigned char)class)) {
	case 'a':
		in = isalpha(c);
		break;
	case 'c':
		in = iscntrl(c);
		break;
	case 'd':
		in = isdigit(c);
		break;
	case 'g':
		in = isgraph(c);
		break;
	case 'l':
		in = islower(c);
		break;
	case 'p':
		in = ispunct(c);
		break;
	case 's':
		in = isspace(c);
		break;
	case 'u':
		in = isupper(c);
		break;
	case 'w':
		in = isalnum(c);
		break;
	case 'x':
		in = isxdigit(c);
		break;
	default:
		return (unsigned char)class == c;
	}
	return isupper((unsigned char)class) ? !in : in;
}

/* Whether the set from '[' to `end` (behind its ']') has `c`. */
static bool set_has(struct matcher *m, const char *p, const char *end, unsigned char c)
{
	bool negated = p[1] == '^', in = false;
	const char *last = end - 1;

	m->steps += (uint32_t)((end - p) / 8);
	for (p += negated ? 2 : 1; p < last && !in;) {
		if (*p == '%') {
			in = class_has(p[1], c);
			p += 2;
		} else if (last - p > 2 && p[1] == '-') {
			in = (unsigned char)p[0] <= c && c <= (unsigned char)p[2];
			p += 3;
		} else {
			in = (unsigned char)*p++ == c;
		}
	}
	return in != negated;
}

static bool item_has(struct matcher *m, const char *s, const char *p, const char *end)
{
	unsigned char c;

	step(m);
	if (s >= m->subject_end)
		return false;
	c = (unsigned char)*s;
	switch (*p) {
	case '.':
		return true;
	case '%':
		return class_has(p[1], c);
	case '[':
		return set_has(m, p, end, c);
	default:
		return (unsigned char)*p == c;
	}
}

/* %bxy */
static const char *match_balance(struct matcher *m, const char *s, const char *p)
{
	size_t open = 1;

	if (m->pattern_end - p < 2)
		luaL_error(m->lua, "malformed pattern (missing arguments to '%%b')");
	if (s >= m->subject_end || *s != p[0])
		return NULL;
	while (++s < m->subject_end) {
		step(m);
		if (*s == p[1]) {
			if (--open == 0)
				return s + 1;
		} else if (*s == p[0]) {
			open++;
		}
	}
	return NULL;
}

/* %f[set]: the border between a character outside of the set and one inside; NUL stands beyond the ends. */
static bool match_frontier(struct matcher *m, const char *s, const char *p, const char *end)
{
	unsigned char before = s == m->subject ? '\0' : (unsigned char)s[-1];
	unsigned char after = s == m->subject_end ? '\0' : (unsigned char)*s;

	step(m);
	return !set_has(m, p, end, before) && set_has(m, p, end, after);
}

static int capture_check(struct matcher *m, char digit)
{
	int which = digit - '1';

	if (which < 0 || which >= m->captures || m->capture[which].len == CAPTURE_OPEN)
		luaL_error(m->lua, "invalid capture index %%%d", which + 1);
	return which;
}

static const char *match_back(struct matcher *m, const char *s, char digit)
{
	int which = capture_check(m, digit);
	ptrdiff_t len = m->capture[which].len;

	if (len == CAPTURE_POSITION)
		return NULL;
	m->steps += (uint32_t)(len / 32);
	step(m);
	if (m->subject_end - s < len || memcmp(m->capture[which].start, s, (size_t)len) != 0)
		return NULL;
	return s + len;
}

static const char *capture_open(struct matcher *m, const char *s, const char *p, ptrdiff_t len)
{
	const char *end;

	if (m->captures >= MAX_CAPTURES)
		luaL_error(m->lua, "too many captures");
	m->capture[m->captures].start = s;
	m->capture[m->captures].len = len;
	m->captures++;
	end = match_rest(m, s, p);
	if (!end)
		m->captures--;
	return end;
}

static const char *capture_close(struct matcher *m, const char *s, const char *p)
{
	const char *end;
	int which = m->captures - 1;

	while (which >= 0 && m->capture[which].len != CAPTURE_OPEN)
		which--;
	if (which < 0)
		luaL_error(m->lua, "invalid pattern capture");
	m->capture[which].len = s - m->capture[which].start;
	end = match_rest(m, s, p);
	if (!end)
		m->capture[which].len = CAPTURE_OPEN;
	return end;
}

/* As many as there are, then fewer, until the rest of the pattern fits. */
static const char *match_greedy(struct matcher *m, const char *s, const char *p, const char *end,
				ptrdiff_t least)
{
	ptrdiff_t count = 0;

	while (item_has(m, s + count, p, end))
		count++;
	for (; count >= least; count--) {
		const char *found = match_rest(m, s + count, end + 1);

		if (found)
			return found;
	}
	return NULL;
}

/* None, then more, until the rest of the pattern fits. */
static const char *match_lazy(struct matcher *m, const char *s, const char *p, const char *end)
{
	for (;; s++) {
		const char *found = match_rest(m, s, end + 1);

		if (found || !item_has(m, s, p, end))
			return found;
	}
}

/*
 * One part of the pattern at `*p` that needs no choice: advances both and returns true, or false if it does not match. An
 * item with a quantifier, or a capture, ends the pattern in a call of its own; then `*done` and the result is `*s`.
 */
static bool match_part(struct matcher *m, const char **s, const char **p, bool *done)
{
	const char *at = *p, *end;
	char quantifier;

	*done = true;
	if (*at == '(') {
		bool position = at + 1 < m->pattern_end && at[1] == ')';

		*s = position ? capture_open(m, *s, at + 2, CAPTURE_POSITION)
			      : capture_open(m, *s, at + 1, CAPTURE_OPEN);
		return *s;
	}
	if (*at == ')')
		return (*s = capture_close(m, *s, at + 1));
	if (*at == '$' && at + 1 == m->pattern_end)
		return *s == m->subject_end;
	*done = false;
	if (*at == '%' && at + 1 < m->pattern_end) {
		switch (at[1]) {
		case 'b':
			*p = at + 4;
			return (*s = match_balance(m, *s, at + 2));
		case 'f':
			at += 2;
			if (at >= m->pattern_end || *at != '[')
				luaL_error(m->lua, "missing '[' after '%%f' in pattern");
			*p = set_end(m, at);
			return match_frontier(m, *s, at, *p);
		case '0':
		case '1':
		case '2':
		case '3':
		case '4':
		case '5':
		case '6':
		case '7':
		case '8':
		case '9':
			*p = at + 2;
			return (*s = match_back(m, *s, at[1]));
		default:
			break;
		}
	}
	end = item_end(m, at);
	quantifier = end < m->pattern_end ? *end : '\0';
	*done = true;
	switch (quantifier) {
	case '*':
		return (*s = match_greedy(m, *s, at, end, 0));
	case '+':
		return (*s = match_greedy(m, *s, at, end, 1));
	case '-':
		return (*s = match_lazy(m, *s, at, end));
	case '?':
		if (item_has(m, *s, at, end)) {
			const char *found = match_rest(m, *s + 1, end + 1);

			if (found) {
				*s = found;
				return true;
			}
		}
		*done = false;
		*p = end + 1;
		return true;
	default:
		*done = false;
		if (!item_has(m, *s, at, end))
			return false;
		++*s;
		*p = end;
		return true;
	}
}

/* Where the match of all of the pattern from `p` ends, or NULL. */
static const char *match_rest(struct matcher *m, const char *s, const char *p)
{
	bool done = false;

	if (++m->depth > MAX_RECURSION)
		luaL_error(m->lua, "pattern too complex");
	step(m);
	while (!done && p < m->pattern_end)
		if (!match_part(m, &s, &p, &done)) {
			s = NULL;
			break;
		}
	m->depth--;
	return s;
}

static void matcher_init(struct matcher *m, lua_State *L, struct str subject, struct str pattern)
{
	m->lua = L;
	m->subject = subject.ptr;
	m->subject_end = subject.ptr + subject.len;
	m->pattern_end = pattern.ptr + pattern.len;
	m->steps = 0;
	m->depth = 0;
	m->captures = 0;
}

static const char *match_at(struct matcher *m, const char *s, const char *pattern)
{
	m->captures = 0;
	m->depth = 0;
	return match_rest(m, s, pattern);
}

/* Pushes capture `which`, or the whole match if the pattern has none and `which` is the first. */
static void push_capture(struct matcher *m, int which, const char *s, const char *end)
{
	lua_State *L = m->lua;

	if (which >= m->captures) {
		if (which != 0)
			luaL_error(L, "invalid capture index %%%d", which + 1);
		lua_pushlstring(L, s, (size_t)(end - s));
		return;
	}
	if (m->capture[which].len == CAPTURE_OPEN)
		luaL_error(L, "unfinished capture");
	if (m->capture[which].len == CAPTURE_POSITION)
		lua_pushinteger(L, m->capture[which].start - m->subject + 1);
	else
		lua_pushlstring(L, m->capture[which].start, (size_t)m->capture[which].len);
}

/* All captures; the whole match if there are none and it is wanted (`s` is not NULL). */
static int push_captures(struct matcher *m, const char *s, const char *end)
{
	int count = m->captures == 0 && s ? 1 : m->captures;

	luaL_checkstack(m->lua, count, "too many captures");
	for (int i = 0; i < count; i++)
		push_capture(m, i, s, end);
	return count;
}

/* The optional start of a search as an offset; beyond the end by one if there is nothing to search. */
static size_t search_start(lua_State *L, int arg, size_t len)
{
	lua_Integer at = luaL_optinteger(L, arg, 1);

	if (at > 0)
		return (lua_Unsigned)at - 1 > len ? len + 1 : (size_t)at - 1;
	if (at == 0 || (lua_Unsigned)-at >= len)
		return 0;
	return len - (size_t)-at;
}

static bool is_plain(struct str pattern)
{
	for (size_t i = 0; i < pattern.len; i++)
		if (pattern.ptr[i] && strchr("^$*+?.([%-", pattern.ptr[i]))
			return false;
	return true;
}

static int find_plain(lua_State *L, struct str subject, struct str pattern, size_t start)
{
	const char *from = subject.ptr + start, *at = from;

	if (pattern.len)
		at = memmem(from, subject.len - start, pattern.ptr, pattern.len);
	/* As far as it had to look. */
	lua_limits_charge(L, (pattern.len + (at ? (size_t)(at - from) : subject.len - start)) / 16);
	if (!at) {
		lua_pushnil(L);
		return 1;
	}
	lua_pushinteger(L, at - subject.ptr + 1);
	lua_pushinteger(L, at - subject.ptr + (lua_Integer)pattern.len);
	return 2;
}

static int search(lua_State *L, bool find)
{
	struct str subject = lua_check_str(L, 1), pattern = lua_check_str(L, 2);
	size_t start = search_start(L, 3, subject.len);
	const char *s = subject.ptr + start, *p = pattern.ptr;
	bool anchored;
	struct matcher m;

	if (start > subject.len) {
		lua_pushnil(L);
		return 1;
	}
	if (find && (lua_toboolean(L, 4) || is_plain(pattern)))
		return find_plain(L, subject, pattern, start);
	anchored = pattern.len && *p == '^';
	p += anchored;
	matcher_init(&m, L, subject, pattern);
	do {
		const char *end = match_at(&m, s, p);

		if (!end)
			continue;
		steps_flush(&m);
		if (!find)
			return push_captures(&m, s, end);
		lua_pushinteger(L, s - subject.ptr + 1);
		lua_pushinteger(L, end - subject.ptr);
		return push_captures(&m, NULL, NULL) + 2;
	} while (s++ < m.subject_end && !anchored);
	steps_flush(&m);
	lua_pushnil(L);
	return 1;
}

static int string_find(lua_State *L)
{
	return search(L, true);
}

static int string_match(lua_State *L)
{
	return search(L, false);
}

/* Upvalues: subject, pattern, where to go on, where the last match ended (an empty one there is not another). */
static int gmatch_next(lua_State *L)
{
	size_t subject_len, pattern_len;
	const char *subject = lua_tolstring(L, lua_upvalueindex(1), &subject_len);
	const char *pattern = lua_tolstring(L, lua_upvalueindex(2), &pattern_len);
	size_t at = (size_t)lua_tointeger(L, lua_upvalueindex(3));
	lua_Integer last = lua_tointeger(L, lua_upvalueindex(4));
	struct matcher m;

	matcher_init(&m, L, str_make(subject, subject_len), str_make(pattern, pattern_len));
	for (; at <= subject_len; at++) {
		const char *end = match_at(&m, subject + at, pattern);

		if (!end || end - subject == last)
			continue;
		steps_flush(&m);
		lua_pushinteger(L, end - subject);
		lua_pushvalue(L, -1);
		lua_replace(L, lua_upvalueindex(3));
		lua_replace(L, lua_upvalueindex(4));
		return push_captures(&m, subject + at, end);
	}
	steps_flush(&m);
	lua_pushinteger(L, (lua_Integer)subject_len + 1);
	lua_replace(L, lua_upvalueindex(3));
	return 0;
}

static int string_gmatch(lua_State *L)
{
	struct str subject = lua_check_str(L, 1);
	size_t start;

	lua_check_str(L, 2);
	start = search_start(L, 3, subject.len);
	lua_settop(L, 2);
	lua_pushinteger(L, (lua_Integer)start);
	lua_pushinteger(L, -1);
	lua_pushcclosure(L, gmatch_next, 4);
	return 1;
}

/* Adds the replacement text at argument 3 with %0 to %9 filled in. */
static void add_template(struct matcher *m, const char *s, const char *end)
{
	lua_State *L = m->lua;
	struct str template = lua_check_str(L, 3);
	size_t plain = 0, i, len;

	m->steps += (uint32_t)(template.len / 16);
	step(m);
	for (i = 0; i < template.len; i++) {
		const char *text;
		char c;

		if (template.ptr[i] != '%')
			continue;
		lua_scratch_add(L, template.ptr + plain, i - plain);
		c = ++i < template.len ? template.ptr[i] : '\0';
		plain = i + 1;
		if (c == '%') {
			lua_scratch_add(L, "%", 1);
		} else if (c == '0') {
			lua_scratch_add(L, s, (size_t)(end - s));
		} else if (c >= '1' && c <= '9') {
			push_capture(m, c - '1', s, end);
			text = lua_tolstring(L, -1, &len);
			lua_scratch_add(L, text, len);
			lua_pop(L, 1);
		} else {
			luaL_error(L, "invalid use of '%%' in replacement string");
		}
	}
	if (plain < template.len)
		lua_scratch_add(L, template.ptr + plain, template.len - plain);
}

static void add_replacement(struct matcher *m, const char *s, const char *end)
{
	lua_State *L = m->lua;
	size_t len;
	const char *text;

	switch (lua_type(L, 3)) {
	case LUA_TFUNCTION:
		lua_pushvalue(L, 3);
		lua_call(L, push_captures(m, s, end), 1);
		break;
	case LUA_TTABLE:
	case LUA_TLIGHTUSERDATA:
		push_capture(m, 0, s, end);
		lua_gettable(L, 3);
		break;
	default:
		add_template(m, s, end);
		return;
	}
	if (!lua_toboolean(L, -1) || lua_is_null(L, -1)) {
		lua_scratch_add(L, s, (size_t)(end - s));
	} else {
		if (!lua_isstring(L, -1))
			luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
		text = lua_tolstring(L, -1, &len);
		lua_scratch_add(L, text, len);
	}
	lua_pop(L, 1);
}

static int string_gsub(lua_State *L)
{
	size_t mark = lua_state_of(L)->scratch.len;
	struct str subject = lua_check_str(L, 1), pattern = lua_check_str(L, 2);
	lua_Integer most = luaL_optinteger(L, 4, LUA_MAXINTEGER), count = 0;
	const char *s = subject.ptr, *p = pattern.ptr, *last = NULL;
	bool anchored = pattern.len && *p == '^';
	int type = lua_type(L, 3);
	struct matcher m;

	luaL_argcheck(L,
		      type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TTABLE ||
			      type == LUA_TLIGHTUSERDATA || type == LUA_TFUNCTION,
		      3, "string, function or table expected");
	p += anchored;
	matcher_init(&m, L, subject, pattern);
	while (count < most) {
		const char *end = match_at(&m, s, p);

		if (end && end != last) {
			count++;
			add_replacement(&m, s, end);
			s = last = end;
		} else if (s < m.subject_end) {
			lua_scratch_add(L, s++, 1);
		} else {
			break;
		}
		if (anchored)
			break;
	}
	steps_flush(&m);
	lua_scratch_add(L, s, (size_t)(m.subject_end - s));
	lua_scratch_push(L, mark);
	lua_pushinteger(L, count);
	return 2;
}

void lua_pattern_fill(lua_State *L)
{
	static const luaL_Reg functions[] = {
		{"find", string_find},
		{"match", string_match},
		{"gmatch", string_gmatch},
		{"gsub", string_gsub},
		{NULL, NULL},
	};

	luaL_setfuncs(L, functions, 0);
}
