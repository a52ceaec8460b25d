#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/configuration.md is what the option table says. To write it anew: sutra config --reference >docs/configuration.md
set -e
: "${top_srcdir:=$(dirname "$0")/../..}" "${top_builddir:=.}"
page=$(mktemp)
trap 'rm -f "$page"' EXIT
"$top_builddir/sutra" config --reference >"$page"
if ! diff -u "$top_srcdir/docs/configuration.md" "$page"; then
	echo "docs/configuration.md is out of date: run sutra config --reference >docs/configuration.md" >&2
	exit 1
fi
