#!/usr/bin/env bash
# A host dies with its agent, and the agent goes on at another host.
#
# It starts PostgreSQL and two daemons on this machine, each with a folder of its own,
# and prints what it types. It needs Go, postgresql (any version from 13 on), and as
# root setpriv. It leaves nothing behind. Run it from anywhere:
#
#   apt-get install postgresql
#   examples/fleet/story.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

. examples/fleet/hosts.sh

say 'Two hosts.'
host alpha
host beta
quiet alpha policy set worker durability=fleet

say 'An agent on alpha counts, and saves each number. Then it begins a payment.'
agent() { # an agent that goes on from the number that it is given
	local n=$2
	while :; do
		n=$((n + 1))
		echo "{\"n\":$n}" | ckptsidecar --socket "$work/$1/s" save worker - >/dev/null 2>&1 || exit 1
		echo "$n" >"$work/$1/acknowledged"
		sleep 0.05
	done
}
agent alpha 0 &
agent_pid=$!
pids+=($agent_pid)
for _ in $(seq 300); do [ "$(cat "$work/alpha/acknowledged" 2>/dev/null || echo 0)" -ge 20 ] && break; sleep 0.1; done
on alpha operation begin worker pay-7 --name pay

say 'alpha dies: its daemon and its agent are killed.'
kill -9 "$agent_pid" "$alpha_pid"
wait "$agent_pid" "$alpha_pid" 2>/dev/null || true
printf 'the last number that was acknowledged: %s\n' "$(cat "$work/alpha/acknowledged")"

say 'beta takes the run over. A host that may still hold its lease needs --force: you know that it is lost.'
on beta fleet claim worker/main --force
on beta show worker --state
echo

say 'Nobody knows whether the payment went out, so a person looks, and says so.'
on beta resume worker || true
on beta operations worker
on beta operation resolve worker pay-7 it_did_not --reason 'the bank has no such payment'
on beta resume worker
n=$(ckptsidecar --socket "$work/beta/s" show worker --state --jq .state.n)
[ "$n" -ge "$(cat "$work/alpha/acknowledged")" ] || { echo "an acknowledged number was lost" >&2; exit 1; }
echo "{\"n\":$((n + 1))}" | on beta save worker -

say 'alpha comes back. Its disk is there, and it does not know yet: what it saves now is on alpha alone.'
mv "$work/engine" "$work/engine.away"
host alpha
quiet alpha policy set worker durability=local
echo '{"n":1000}' | on alpha save worker -
mv "$work/engine.away" "$work/engine"

say 'It reaches the engine, and hears that beta owns the run.'
for _ in $(seq 300); do
	echo '{"n":1001}' | ckptsidecar --socket "$work/alpha/s" save worker - >/dev/null 2>&1 || break
	sleep 0.2
done
echo '{"n":1002}' | on alpha save worker - || true

say 'A person looks at what only alpha has, keeps it in a file, and deletes the run there.'
on alpha fleet status
on alpha export worker -o "$work/worker.db"
on alpha run delete worker --run main
on alpha runs worker
