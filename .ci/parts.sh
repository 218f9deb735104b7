# Sourced by run and nightly: parts that are timed, and a table at the end.

# One set of flags, so that vet, tests and builds share one cache.
export GOFLAGS=-trimpath CGO_ENABLED=0

scratch=$(mktemp -d) lane=
trap '[ -z "$lane" ] || kill -- "-$lane" 2>/dev/null; rm -rf "$scratch"' EXIT
touch "$scratch/table"

# processor FILE: the seconds of processor time in what times has written, of all
# programs that a shell has waited for.
processor() { awk -F '[ms ]+' 'NR == 2 {printf "%d", $1 * 60 + $2 + $3 * 60 + $4}' "$1"; }

# part NAME COMMAND...: runs the command and keeps its time and result. Who
# sources this has no -e itself: bash ignores -e in the subshell of a condition.
part() {
	local name=$1 begun=$SECONDS rc result=ok spent
	shift
	spent=$(mktemp -p "$scratch")
	printf '\n== %s\n' "$name"
	( trap 'times >"$spent"' EXIT; set -euo pipefail; "$@" ) </dev/null
	rc=$?
	[ "$rc" -eq 0 ] || result="FAILED ($rc)"
	printf '%-24s %5d s %5d s  %s\n' "$name" $((SECONDS - begun)) "$(processor "$spent")" "$result" >>"$scratch/table"
}

# beside FUNCTION: runs parts in the background. Finish waits for them and prints what
# they said. With -m, signals are not ignored in there, and nothing of it outlives this.
beside() {
	set -m
	"$1" >"$scratch/beside" 2>&1 </dev/null &
	lane=$!
	set +m
}

# finish prints the table and ends with 1 where a part failed.
finish() {
	if [ -n "$lane" ]; then
		wait "$lane"
		lane=
		cat "$scratch/beside"
	fi
	printf '\n== in all: part, time, processor time, result\n'
	cat "$scratch/table"
	times >"$scratch/spent"
	printf '%-24s %5d s %5d s\n' total "$SECONDS" "$(processor "$scratch/spent")"
	! grep -q 'FAILED' "$scratch/table"
	exit
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

# go_alone FLAGS, PACKAGES...: the README promises that the tests pass where only Go is installed. Beside Go stand the programs that each Debian has.
go_alone() {
	local bin=$scratch/alone program
	mkdir "$bin"
	for program in $(dpkg-query -Wf '${Essential} ${Package}\n' | sed -n 's/^yes //p' | xargs dpkg -L | grep -E '/s?bin/') "$(command -v sh)" "$(command -v awk)"; do
		ln -sf "$program" "$bin"
	done
	ln -s "$(command -v go)" "$bin/go"
	PATH=$bin CKPTSIDECAR_NO_ENGINE=1 go test "$@"
}
