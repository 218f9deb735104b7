#!/usr/bin/env bash
# An agent that counts from the number of its newest checkpoint, and saves each number.
set -euo pipefail
n=$(sed -n 's/.*"state":{"n":\([0-9]*\)}.*/\1/p' "$CKPTSIDECAR_PLAN")
n=${n:-0}
while :; do
	n=$((n + 1))
	echo "{\"n\":$n}" | ckptsidecar save "$CKPTSIDECAR_AGENT" - --run "$CKPTSIDECAR_RUN" --epoch "$CKPTSIDECAR_EPOCH" >/dev/null
	echo "$HOST $n $(cut -d' ' -f1 /proc/uptime)" >>"$SEEN"
	sleep 0.2
done
