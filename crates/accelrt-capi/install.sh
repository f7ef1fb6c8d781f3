#!/usr/bin/env bash
# Installs the library for C, its headers and its pkg-config file: install.sh PREFIX [DESTDIR].
set -euo pipefail
cd "$(dirname "$0")/../.."

prefix=$1
installed=${2:-}$prefix
target=${CARGO_TARGET_DIR:-target}
abi=$(sed -n 's/^#define ACCELRT_ABI_VERSION //p' include/accelrt.h)
library=libaccelrt.so.$abi

"${CARGO:-cargo}" rustc --release --package accelrt-capi --lib --crate-type cdylib -- \
	-C "link-arg=-Wl,-soname,$library"
install -d "$installed/lib/pkgconfig" "$installed/include"
install -m 755 "$target/release/libaccelrt_capi.so" "$installed/lib/$library"
ln -sf "$library" "$installed/lib/libaccelrt.so"
install -m 644 include/accelrt.h include/accelrt.hpp include/accelrt_backend.h "$installed/include"
cat >"$installed/lib/pkgconfig/accelrt.pc" <<END
prefix=$prefix
Name: accelrt
Description: Streams, events and stream-ordered memory of any device
Version: $(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -laccelrt
END
