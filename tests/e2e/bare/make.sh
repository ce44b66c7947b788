#!/bin/sh
# A stand-in for OpenWrt's build system: builds the package of a tarball with the makefile that is in it, and installs that.
#
#   make.sh FOLDER TARBALL     FOLDER: an empty one; FOLDER/installed gets the package's files
set -eu
folder=$1
tarball=$2
name=$(basename "$tarball" .tar.xz)
mkdir -p "$folder/build" "$folder/include" "$folder/installed"
tar -xf "$tarball" -C "$folder/build"

cat >"$folder/rules.mk" <<'MAKE'
INSTALL_DIR:=install -d -m 755
INSTALL_BIN:=install -m 755
INSTALL_CONF:=install -m 600
MAKE
# The makefile names the tarball that is downloaded: it must be this one.
cat >"$folder/include/package.mk" <<'MAKE'
define BuildPackage
install:
	test '$(PKG_SOURCE)' = '$(TARBALL)'
	$(call Package/$(1)/install,$(DESTINATION))
endef
MAKE
make --silent --file "$folder/build/$name/openwrt/Makefile" install TOPDIR="$folder" INCLUDE_DIR="$folder/include" \
	BUILD_DIR="$folder/build" ARCH=x86_64 TARBALL="$name.tar.xz" DESTINATION="$folder/installed"
