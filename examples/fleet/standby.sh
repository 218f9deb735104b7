#!/usr/bin/env bash
# A host dies with its daemon and its agent, and a standby on another host goes on by
# itself.
#
# It starts PostgreSQL and two daemons on this machine, and prints what it types. It
# needs Go, postgresql (any version from 13 on), and as root setpriv. It leaves nothing
# behind. Run it from anywhere:
#
#   apt-get install postgresql
#   examples/fleet/standby.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

lease=5s grace=2s
. examples/fleet/hosts.sh

say 'Two hosts. The agent loses nothing (durability: fleet), so its runs may move by themselves.'
host alpha
host beta
type_ cat examples/fleet/count.sh
quiet alpha policy set counter durability=fleet

# supervised NAME [FLAG] runs the agent under exec on a host.
supervised() {
	local name=$1
	shift
	printf '%s$ ckptsidecar exec --agent counter %s-- examples/fleet/count.sh &\n' "$name" "${1:+$1 }"
	CKPTSIDECAR_SOCKET=$work/$name/s SEEN=$work/seen HOST=$name ckptsidecar exec --agent counter "$@" -- examples/fleet/count.sh \
		>>"$work/$name/out" 2>&1 &
	pids+=($!)
	eval "${name}_exec=$!"
}
now() { cut -d' ' -f1 /proc/uptime; }
last() { tail -1 "$work/seen" 2>/dev/null || echo "nobody 0 0"; }
until_() { # WORDS: waits until the last line of what was seen begins with them
	for _ in $(seq 600); do case "$(last)" in "$1"*) return ;; esac; sleep 0.1; done
	cat "$work"/*/out "$work"/*/log >&2
	exit 1
}

supervised alpha
until_ 'alpha 1'
supervised beta --standby
for _ in $(seq 300); do grep -q 'exec waits' "$work/beta/out" 2>/dev/null && break; sleep 0.1; done
cat "$work/beta/out"

say 'alpha dies: its daemon, exec and the agent are killed.'
kill -9 "$alpha_exec" "$alpha_pid"
wait "$alpha_exec" "$alpha_pid" 2>/dev/null || true
sleep 0.2 # the kernel ends the agent with its exec
died=$(now)
printf 'the last number that was acknowledged: %s\n' "$(last)"
acknowledged=$(last | cut -d' ' -f2)

until_ 'beta '
read -r _ first when < <(grep '^beta' "$work/seen" | head -1)
awk -v a="$died" -v b="$when" 'BEGIN { printf "beta goes on after %.1f s; lease and grace are 7 s\n", b - a }'
[ "$first" -gt "$acknowledged" ] || { echo "number $acknowledged was acknowledged, and beta began with $first" >&2; exit 1; }
awk -v a="$died" -v b="$when" 'BEGIN { exit !(b - a < 7 + 1 + 2) }' || { echo "that took too long" >&2; exit 1; }
grep ckptsidecar "$work/beta/out" | tail -1

say 'Nobody had to decide anything. alpha comes back, and its exec is told that the run is beta'"'"'s.'
host alpha
for _ in $(seq 100); do ckptsidecar --socket "$work/alpha/s" save counter - <<<'{"n":0}' >/dev/null 2>&1 || break; sleep 0.1; done
supervised alpha
wait "$alpha_exec" || printf 'alpha: exec ended with %s\n' $?
tail -2 "$work/alpha/out"
on beta fleet hosts
