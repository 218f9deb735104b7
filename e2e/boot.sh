#!/bin/bash
# Boots a machine: boot.sh ROOT NAME SHARED VOLATILE. What a machine with the volatile
# mode overlay writes is thrown away, and with the mode no it stays. It is run in a mount
# namespace of its own, and becomes systemd-nspawn.
set -e
root=$1 name=$2 shared=$3 volatile=$4
# A place of its own among the control groups, or two machines would share one.
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
	if [ -d "$hierarchy" ]; then
		mkdir -p "$hierarchy/$name"
		echo $$ >"$hierarchy/$name/cgroup.procs"
	fi
done
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
	mkdir -p "/sys/fs/cgroup/$name"
	echo $$ >"/sys/fs/cgroup/$name/cgroup.procs"
fi
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
exec systemd-nspawn -D "$root" -M "$name" --register=no --keep-unit --private-network --link-journal=no \
	--console=read-only --volatile="$volatile" --bind-ro="$shared:/mnt" -b
