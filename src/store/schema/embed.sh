#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes the migrations as C to standard output: embed.sh NNNN_name.sql…, in order.

echo '/* Made from src/store/schema by the build. */'
echo '#include "store/pg/private.h"'
echo 'const struct migration migrations[] = {'
for file in "$@"; do
	name=${file##*/}
	version=${name%%_*}
	# Without leading zeros, which C takes for octal.
	version=$(expr "$version" + 0) || exit 1
	echo "	{$version, \"$name\","
	sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$/\\n"/' "$file" || exit 1
	echo '	},'
done
echo '};'
echo 'const int migration_count = (int)(sizeof(migrations) / sizeof(migrations[0]));'
