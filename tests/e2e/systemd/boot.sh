#!/bin/sh
# Boots a Debian in namespaces of its own, with systemd as process 1: it sees no process, mount, network interface or
# cgroup but its own, and the machine sees nothing of what it does. The Debian is only read: what it writes goes to
# memory, and is there again after `systemctl reboot`.
#
#   boot.sh ROOT FOLDER     ROOT: the Debian. FOLDER: an empty one; FOLDER/files is copied over the root
#
# The caller starts it under `unshare --mount`, kills it when the machine shall end, which ends everything, and calls
# sweep.sh afterwards.
set -eu
root=$1
folder=$2

# One boot: called below, in new namespaces.
if [ "${3:-}" = inside ]; then
    layers=lowerdir=$root,upperdir=$folder/memory/upper,workdir=$folder/memory/work
    mount -t overlay -o "$layers" overlay "$folder/root"
    cd "$folder/root"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t bpf bpf sys/fs/bpf
    mount -t tmpfs tmpfs run
    mount -t tmpfs tmpfs dev
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    mknod -m 666 dev/null c 1 3
    mknod -m 666 dev/zero c 1 5
    mknod -m 666 dev/full c 1 7
    mknod -m 666 dev/random c 1 8
    mknod -m 666 dev/urandom c 1 9
    mknod -m 666 dev/tty c 5 0
    mkdir -p old
    pivot_root . old
    umount -l /old
    # As on a real machine: systemd mounts what it hands over to a service (LoadCredential=) in a namespace of a helper.
    mount --make-rshared /
    export container=weir
    exec /sbin/init
fi

mkdir -p "$folder/memory" "$folder/root"
mount -t tmpfs tmpfs "$folder/memory"
mkdir "$folder/memory/upper" "$folder/memory/work"
cp -a "$folder/files/." "$folder/memory/upper"

# A cgroup namespace begins where the process is that makes it: first into a cgroup of its own.
mkdir -p "$folder/cgroup"
mount -t cgroup2 cgroup2 "$folder/cgroup"
own=$folder/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/$(basename "$folder")
mkdir -p "$own"
echo $$ >"$own/cgroup.procs"
umount "$folder/cgroup"

# Process 1 of the namespaces ends with the signal HUP when it wanted to boot again: reboot(2).
REBOOT=129
while
    status=0
    setpriv --pdeathsig KILL unshare --mount --pid --cgroup --uts --ipc --net --fork --kill-child \
        sh "$0" "$root" "$folder" inside || status=$?
    [ $status = $REBOOT ]
do :; done
exit $status
