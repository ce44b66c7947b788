#!/bin/sh
# Makes a system that has busybox and nothing else, and installs weir from a tarball on it, as docs/INSTALL.md says for
# OpenWrt.
#
#   root.sh FOLDER TARBALL     FOLDER: an empty one
set -eu
folder=$1
tarball=$2
here=$(dirname "$0")

cd "$folder"
mkdir -p bin dev etc/init.d etc/ssl/certs etc/weir proc run sbin sys tmp/weir usr/bin usr/sbin var/lib
cp "$(command -v busybox)" bin/busybox
chroot . /bin/busybox --install -s
echo 'root:x:0:0:root:/:/bin/sh' >etc/passwd
echo '127.0.0.1 localhost collector.test' >etc/hosts
tar -xf "$tarball" --strip-components=1 -C tmp/weir
cp tmp/weir/weir usr/bin/weir
cp tmp/weir/openwrt/weir.yaml etc/weir/weir.yaml
cp tmp/weir/openwrt/weir.init etc/init.d/weir
cp "$here/rc.common" etc/rc.common
chmod +x usr/bin/weir etc/init.d/weir
