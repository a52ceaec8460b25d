/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiler attributes and the two macros that every file may rely on.
 * No life cycle, no threads.
 */
#ifndef SUTRA_BASE_ATTR_H
#define SUTRA_BASE_ATTR_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The caller must look at the result. */
#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
#define UNUSED __attribute__((unused))
#define NORETURN __attribute__((noreturn))

/* The structure of `type` whose `member` is at `ptr`. */
#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(void *)(ptr) - offsetof(type, member)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
