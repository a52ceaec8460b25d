/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heap allocation that cannot fail: a refused small allocation ends the process with a message.
 * Input-sized allocations are bounded by their caller first. Freed with free(). Threads: any.
 */
#ifndef SUTRA_BASE_ALLOC_H
#define SUTRA_BASE_ALLOC_H

#include <stdlib.h>

#include "base/attr.h"

void *mem_alloc(size_t size);			  /* not cleared */
void *mem_zalloc(size_t size);			  /* cleared */
void *mem_realloc(void *ptr, size_t size);
void *mem_array(void *ptr, size_t count, size_t size); /* realloc with an overflow check */
char *mem_strdup(const char *text);
NORETURN void mem_exhausted(size_t size);

#endif
