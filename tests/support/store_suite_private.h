/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the suite share. Life cycle: of one test. Threads: the test's. */
#ifndef SUTRA_TESTS_SUPPORT_STORE_SUITE_PRIVATE_H
#define SUTRA_TESTS_SUPPORT_STORE_SUITE_PRIVATE_H

#include "tests/support/store_suite.h"

/* A timeout that makes every stamp stale. */
#define STALE_MS INT64_C(-5000)
#define LIMIT    INT64_C(1000)
#define MANY     256

/* The store under test. */
extern struct store_rig suite_rig;
/* Another executor on the same tables. */
struct executor *suite_executor_new(void);

struct store_settings *suite_settings_now(int64_t claim_timeout_ms, const char *outbox_owner);
void suite_reopen(const struct store_settings *settings);
enum store_outcome suite_spawn(const char *tenant, uint32_t n);
enum store_outcome suite_claim(const char *tenant, uint32_t n, const char *owner);
void suite_given_claimed(const char *tenant, uint32_t n, const char *owner);
struct field suite_instance_field(const char *tenants, uint32_t n, uint32_t column);
bool suite_instance_exists(const char *tenants, uint32_t n);
void suite_many_spawns(struct store_commit *commits, struct store_request **all, bool events);

void store_suite_rows_add(TCase *outbox, TCase *background);
void store_suite_kept_add(TCase *kept);
void store_suite_early_add(TCase *early);
void store_suite_timers_add(TCase *timers);
void store_suite_pools_add(TCase *pools);

#endif
