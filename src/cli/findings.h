/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings about a package, as the commands print them: the path of each made one from the working directory, so that
 * editors and terminals can follow it.
 * Life cycle: none. Threads: main.
 */
#ifndef SUTRA_CLI_FINDINGS_H
#define SUTRA_CLI_FINDINGS_H

#include <stdio.h>

#include "model/package.h"

/* `path` is the folder or archive that was read. */
void findings_print(const struct findings *findings, const char *path, FILE *out);

#endif
