#!/bin/sh
# Makes a small Debian with systemd, of the release that this machine has and from the mirror that its packages come
# from.
#
#   debian.sh FOLDER     does nothing if there is one
set -eu
folder=$1
if [ -d "$folder" ]; then exit; fi

release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mirror=$(apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' "Codename: $release" | head -n 1)
if [ -z "$mirror" ]; then
    echo "no mirror for $release in the sources of apt" >&2
    exit 1
fi
# What is there is whole: it gets its name last.
rm -rf "$folder.part"
mkdir -p "$(dirname "$folder")"
if ! debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2 \
    "$release" "$folder.part" "$mirror" >"$folder.log" 2>&1; then
    tail -n 20 "$folder.log" >&2
    exit 1
fi
mv "$folder.part" "$folder"
