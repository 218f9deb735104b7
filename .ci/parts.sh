# Sourced by run and nightly: parts that are timed, and a table at the end.

# One set of flags, so that vet, tests and builds share one cache.
export GOFLAGS=-trimpath CGO_ENABLED=0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
table=() failed=0

# processor BEFORE AFTER: the seconds of processor time between two outputs of times,
# of all programs that the shell has waited for.
processor() {
	awk -F '[ms ]+' 'FNR == 2 {sum = $1 * 60 + $2 + $3 * 60 + $4 - sum} END {printf "%d", sum}' "$1" "$2"
}

# part NAME COMMAND...: runs the command and keeps its time and result. Who
# sources this has no -e itself: bash ignores -e in the subshell of a condition,
# and signals in one that runs in the background.
part() {
	local name=$1 begun=$SECONDS rc
	shift
	times >"$scratch/before"
	printf '\n== %s\n' "$name"
	( set -euo pipefail; "$@" ) </dev/null
	rc=$?
	times >"$scratch/after"
	local result=ok
	[ "$rc" -eq 0 ] || { result="FAILED ($rc)"; failed=1; }
	table+=("$(printf '%-24s %5d s %5d s  %s' "$name" $((SECONDS - begun)) "$(processor "$scratch/before" "$scratch/after")" "$result")")
}

# finish prints the table and ends with 1 where a part failed.
finish() {
	printf '\n== in all: part, time, processor time, result\n'
	printf '%s\n' "${table[@]}"
	times >"$scratch/after"
	printf '%-24s %5d s %5d s\n' total "$SECONDS" "$(processor /dev/null "$scratch/after")"
	exit "$failed"
}

# debian installs what is missing of COMMAND:PACKAGE pairs.
debian() {
	local missing=() pair
	for pair in "$@"; do
		command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
		echo "not installed, and only root on Debian can install them here: ${missing[*]}"
		return 1
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}
