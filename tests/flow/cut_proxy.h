/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP proxy on 127.0.0.1 that cuts a connection after a number of bytes, for tests of what a loss at that very place does.
 *
 * Life cycle: cut_proxy_new/cut_proxy_free. Threads: one of its own; calls from the test's.
 */
#ifndef SUTRA_TESTS_FLOW_CUT_PROXY_H
#define SUTRA_TESTS_FLOW_CUT_PROXY_H

#include "base/attr.h"

struct cut_proxy;

enum cut_direction { CUT_REQUESTS, CUT_ANSWERS };

/* Forwards to 127.0.0.1:`port`. Never NULL. */
struct cut_proxy *cut_proxy_new(int port);
void cut_proxy_free(struct cut_proxy **proxy);
int cut_proxy_port(const struct cut_proxy *proxy);
/* The connection that carries the n-th next byte of this direction is closed behind it; 0: before the next byte. Once. */
void cut_proxy_arm(struct cut_proxy *proxy, enum cut_direction direction, int64_t bytes);
/* Closes all connections that are open. Returns when that is done. */
void cut_proxy_cut(struct cut_proxy *proxy);
/* Bytes forwarded so far. */
int64_t cut_proxy_bytes(const struct cut_proxy *proxy, enum cut_direction direction);
/* Cuts so far. */
int cut_proxy_cuts(const struct cut_proxy *proxy);

#endif
