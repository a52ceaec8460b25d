/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains: deliveries that must take effect in order of receipt. Only the first of a chain is ever on a lane or held;
 * everything behind it waits, so a refused message keeps its place while other chains go on (G8, G7).
 *
 * A chain has names, under which those that belong to it find it: its order key; where the order is by instance, the business
 * keys that its messages came by, and their instance. One without a name is a single delivery that belongs to no order.
 *
 * A chain is parked while a delivery of it is held: its live deliveries (those that the broker still has out to us and
 * that nobody works on) then count in the intake's bounds, see hold.h.
 *
 * Life cycle: a chain is made by the first that joins it and ends with the last that leaves. Threads: the intake's loop.
 */
#ifndef SUTRA_FLOW_CHAIN_H
#define SUTRA_FLOW_CHAIN_H

#include "base/list.h"
#include "base/str.h"

struct delivery;
struct intake;

struct chain {
	struct list deliveries;
	struct list names; /* struct chain_name, owned: its entries in intake.chains */
	uint32_t held;	   /* of its deliveries are held */
	uint32_t live;	   /* of its deliveries are the broker's, and not being kept */
	uint64_t live_bytes;
	struct list parked_link; /* in intake.parked while held and live are above 0 */
};

struct chain_name {
	struct list link;
	size_t len;
	char key[];
};

/* Joins the chain that has one of these names, which then has them all. Without names: one of its own. */
void chain_join(struct delivery *dlv, const struct str *keys, uint32_t count);
/* Whether nothing is before it. */
bool chain_is_head(const struct delivery *dlv);
/* Takes the delivery out; returns the new head if it was the head, else NULL. */
struct delivery *chain_leave(struct delivery *dlv);
/* Puts `place` right before `dlv`, into its chain. */
void chain_put_before(struct delivery *dlv, struct delivery *place);
/* Puts the whole chain of `dlv` behind the chain of `place`: from now on they are one. */
void chain_put_behind(struct delivery *place, struct delivery *dlv);
/* One of its deliveries is held, or no longer. */
void chain_held(struct delivery *dlv, bool held);
/* The delivery counts as live, or no longer: the database is about to keep it. */
void chain_live(struct delivery *dlv, bool live);

#endif
