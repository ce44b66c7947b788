#!/bin/sh
# Mounts what the kernel shows into a system, and keeps that until standard input ends.
#
#   hold.sh FOLDER     in a mount namespace of its own, whose /sys shows the interfaces
set -eu
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
echo ready
exec cat
