#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes configure out of configure.ac. Needs autoconf, automake and pkg-config (its pkg.m4).
set -e
cd "$(dirname "$0")"
exec autoreconf --install --warnings=all,no-portability "$@"
