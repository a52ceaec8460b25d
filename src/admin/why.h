/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the answers to "why is it not moving" have in common. Each begins with what is asked for, goes on with what was found, and
 * ends with causes: a sentence on what holds it, and one on what the operator can do. The database's are the same whichever
 * replica is asked; those of memory are the asked replica's alone, so who asks several puts them together.
 *
 * Threads: the admin loop.
 */
#ifndef SUTRA_ADMIN_WHY_H
#define SUTRA_ADMIN_WHY_H

#include "admin/internal.h"

/* How many rows of a list in the database are looked through. */
#define WHY_ROWS 1000

enum why_scope {
	WHY_DATABASE,
	WHY_REPLICA,
};

struct why_cause {
	enum why_scope scope;
	const char *cause; /* a word for programs */
	enum code code;
	const char *remedy;
};

/* Appends a cause to `causes`: JSON, without the brackets of the list. */
void why_cause(struct buf *causes, const struct why_cause *cause, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* {"kind":…,"id":…,"replica":…,"at":… */
void why_open(struct admin_request *request, const char *kind, struct str id);
/* Ends the answer with the causes, which are freed, and sends it. */
void why_close(struct admin_request *request, struct buf *causes);

/* The place of a consumed channel in admin_sources; -1: this replica does not consume it. `channel` is filled if it is there. */
int64_t why_channel_find(struct admin_request *request, struct str tenant, struct str channel,
			 struct admin_channel *out);

struct why_ask {
	struct inspection inspection;
	struct admin_request *request;
	void (*then)(struct admin_request *request);
};
/* Sends the question; `then` runs with the answer, at once if there is no intake. The ask is in the request's arena. */
void why_inspect(struct admin_request *request, int64_t channel, struct why_ask *ask,
		 void (*then)(struct admin_request *request));

/* A delivery that an intake has, and why it does not move. */
void why_delivery(struct admin_request *request, const struct inspected *delivery, struct str channel);
void why_delivery_cause(struct admin_request *request, struct buf *causes, const struct inspected *delivery,
			struct str channel);
/* Members of a kept message, from a row of KEPT_LIST; kept.c. */
void admin_kept_columns(struct buf *out, const struct rows *rows, uint32_t row);

/* Whole seconds from `from_us` to now, at least 0. */
int64_t why_seconds_since(struct admin_request *request, int64_t from_us);

#endif
