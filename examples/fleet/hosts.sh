# What the stories of this folder have in common: PostgreSQL, and hosts on this machine,
# each with a daemon and a folder of its own. It is sourced, from the top of the
# repository. A story may set lease and grace before.

work=$(mktemp -d /tmp/fleet-story.XXXXXX)
pids=()
cleanup() {
	kill -9 "${pids[@]}" 2>/dev/null || true
	[ ! -d "$work/pg" ] || as_postgres pg_ctl -D "$work/pg" -m immediate stop >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap cleanup EXIT

say() { printf '\n# %s\n' "$*"; }
type_() { printf '$ %s\n' "$*"; "$@"; }

# PostgreSQL refuses to run as root.
as_postgres() {
	local program=$1
	shift
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && setpriv --reuid=65534 --regid=65534 --clear-groups "$bin/$program" "$@")
	else
		(cd / && "$bin/$program" "$@")
	fi
}

bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -1 || command -v initdb)")
[ -x "$bin/initdb" ] || { echo "PostgreSQL is not installed: apt-get install postgresql" >&2; exit 1; }

CGO_ENABLED=0 go build -o "$work/ckptsidecar" ./cmd/ckptsidecar
PATH=$work:$PATH
chmod 755 "$work"

say 'The engine: PostgreSQL. Yours has a synchronous standby; this one is alone.'
mkdir "$work/pg"
[ "$(id -u)" -ne 0 ] || chown 65534:65534 "$work/pg"
as_postgres initdb -D "$work/pg" -A trust -U postgres -E UTF8 --no-sync >/dev/null
as_postgres pg_ctl -w -D "$work/pg" -l "$work/pg/log" -o "-p ${PORT:=$((20000 + RANDOM % 10000))} -c listen_addresses=127.0.0.1 -c unix_socket_directories=$work/pg" start >/dev/null
as_postgres psql -q -h 127.0.0.1 -p "$PORT" -U postgres -c 'CREATE DATABASE fleet'
echo "postgres://postgres@127.0.0.1:$PORT/fleet" >"$work/engine"
chmod 600 "$work/engine"
type_ ckptsidecar fleet migrate "$(cat "$work/engine")"

# host NAME starts a daemon as a host of its own would run it.
host() {
	mkdir -p "$work/$1"
	ckptsidecar serve --db "$work/$1/ckpt.db" --socket "$work/$1/s" --set fleet.engine_file="$work/engine" --set fleet.name="$1" \
		--set fleet.assume_durable=true --set fleet.lease="${lease:-15s}" --set fleet.grace="${grace:-5s}" 2>>"$work/$1/log" &
	pids+=($!)
	eval "$1_pid=$!"
	for _ in $(seq 200); do ckptsidecar --socket "$work/$1/s" status >/dev/null 2>&1 && return; sleep 0.1; done
	cat "$work/$1/log" >&2
	exit 1
}
on() { local name=$1; shift; printf '%s$ ckptsidecar %s\n' "$name" "$*"; ckptsidecar --socket "$work/$name/s" "$@"; }
quiet() { local name=$1; shift; ckptsidecar --socket "$work/$name/s" "$@" >/dev/null; }
