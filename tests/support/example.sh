# SPDX-License-Identifier: Apache-2.0
#
# What the examples share: sourced by examples/*/run, which sets `example` to its name and `root` to the source tree.

fail() {
	echo "$example: $1" >&2
	exit 1
}

step() { # NAME COMMAND…: with its output in a log, of which the end is shown when it fails
	local name=$1
	shift
	"$@" >"$build/$name.log" 2>&1 </dev/null && return
	tail -n 40 "$build/$name.log" >&2
	fail "$name failed; all of it is in $build/$name.log"
}

# example_install YES-OR-NO PACKAGE…: what is missing, but for these packages.
example_install() {
	local log
	. "$root/tests/support/packages.sh"
	log=$(mktemp "${TMPDIR:-/tmp}/$example.XXXXXX") || exit 1
	packages_install "$example" "$1" "$log" "${@:2}"
	rm -f "$log"
}

# example_needs COMMAND…
example_needs() {
	local command
	for command in "$@"; do
		command -v "$command" >/dev/null || fail "not found: $command; install it and run this again"
	done
}

# Builds the engine, unless the caller names one, and exports SUTRA_BINARY.
example_build() {
	[ -z "${SUTRA_BINARY:-}" ] || return 0
	build=${SUTRA_BUILD_DIR:-$root/build-$example}
	mkdir -p "$build" && build=$(cd "$build" && pwd) || exit 1
	echo "build           $build"
	if [ -e "$root/config.status" ] && [ "$build" != "$root" ]; then
		fail "the source tree itself is configured; run make distclean there first"
	fi
	if [ ! -e "$root/configure" ] || [ "$root/configure.ac" -nt "$root/configure" ]; then
		(cd "$root" && step autogen ./autogen.sh) || exit 1
	fi
	if [ ! -e "$build/config.status" ] || [ "$root/configure" -nt "$build/config.status" ]; then
		(cd "$build" && step configure "$root/configure") || exit 1
	fi
	step make make -C "$build" -j"$(nproc)" all
	export SUTRA_BINARY=$build/sutra
}
