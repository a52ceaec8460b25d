# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What this machine lacks of tests/packages.txt, for the scripts that install it. Sourced by bash; wants $root.

# packages_missing [EXCEPT…]: the packages that are missing, one a line, without those named.
packages_missing() {
	local package command installed except=" $* "
	installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii  *//p')
	while read -r package command; do
		case $package in '' | '#'*) continue ;; esac
		case $except in *" $package "*) continue ;; esac
		if [ -n "$command" ]; then
			command -v "$command" >/dev/null || echo "$package"
		else
			grep -qxF -- "$package" <<<"$installed" || echo "$package"
		fi
	done <"$root/tests/packages.txt"
}

# packages_install WHO yes|no LOG [EXCEPT…]: installs what is missing where apt is there, or names it. What cannot be
# installed is told and not an error: whatever needs it will say so.
packages_install() {
	local who=$1 allowed=$2 log=$3 missing
	shift 3
	command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || return 0
	missing=$(packages_missing "$@")
	[ -n "$missing" ] || return 0
	if [ "$allowed" = no ] || [ "$(id -u)" -ne 0 ]; then
		echo "$who: not installed here: "$missing >&2
		return 0
	fi
	echo "installing: "$missing
	{ apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing; } \
		>"$log" 2>&1 </dev/null && return 0
	tail -n 30 "$log" >&2
	echo "$who: apt-get failed; going on with what is here" >&2
}
