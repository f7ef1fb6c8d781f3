#!/usr/bin/env bash
# Compares the library in pages of `view` with npm's package, file by file: viewer.sh FOLDER.
set -euo pipefail
vendor=$PWD/python/accelrt/cli/view/vendor/uplot
version=$(sed -n '1s/^uPlot \([0-9.]*\).*/\1/p' "$vendor/README.md")

rm -rf "$1"
mkdir -p "$1"
cd "$1"
npm pack --silent "uplot@$version"
tar -xzf uplot-*.tgz
(cd "$vendor" && sha256sum --check --strict SHA256SUMS)
for file in LICENSE dist/uPlot.iife.min.js dist/uPlot.min.css; do
	cmp "package/$file" "$vendor/${file#dist/}"
done
