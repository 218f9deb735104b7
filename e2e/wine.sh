#!/bin/bash
# A throw-away place for Wine: wine.sh ROOT SHARED. It is run in mount and
# process namespaces of its own, lays a volatile layer over ROOT, and waits there
# until it is killed; all that runs in it goes with it.
set -e
root=$1 shared=$2
layer=$(mktemp -d)
mount -t tmpfs -o size=4g tmpfs "$layer"
mkdir "$layer"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
cd "$layer/root"
mkdir -p mnt dev/shm
mount -t proc proc proc
mount -t tmpfs tmpfs dev
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
for node in null zero full random urandom tty; do
	touch "dev/$node"
	mount --bind "/dev/$node" "dev/$node"
done
mount --bind "$shared" mnt
exec chroot . sleep infinity
