#!/bin/sh
# Removes the cgroups that boot.sh made for FOLDER, once all their processes have ended.
#
#   sweep.sh FOLDER     under `unshare --mount`
set -eu
folder=$1
mkdir -p "$folder/cgroup"
mount -t cgroup2 cgroup2 "$folder/cgroup"
own=$folder/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/$(basename "$folder")
if [ -d "$own" ]; then find "$own" -depth -type d -exec rmdir {} +; fi
