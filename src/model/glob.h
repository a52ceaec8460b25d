/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Message type patterns: `*` stands for any characters, also none, `?` for one; everything else for itself. Private to model.
 * Threads: pure functions.
 */
#ifndef SUTRA_MODEL_GLOB_H
#define SUTRA_MODEL_GLOB_H

#include "base/str.h"

/* Whether the whole text fits. Linear in text times pattern, at worst. */
bool glob_match(struct str pattern, struct str text);
/* Whether some text fits both. Patterns of at most GLOB_MAX bytes. */
#define GLOB_MAX 128
bool glob_overlap(struct str a, struct str b);

#endif
