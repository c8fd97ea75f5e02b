#!/usr/bin/env bash
# Installs, on Debian and as root, the programs that `make test` calls and that pip cannot install; elsewhere it names
# them and fails. `tools/system-packages.sh demo`: only what `make demo` calls.
set -euo pipefail

java_is_new() { [ "$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)" -ge 17 ]; } 2>/dev/null
go_is_new() { [ "$(go version | sed -n 's/.* go1\.\([0-9]*\).*/\1/p')" -ge 21 ]; } 2>/dev/null

missing=()
command -v mvn >/dev/null || missing+=(maven)
if [ "${1:-}" = demo ]; then
  java_is_new || missing+=(default-jre-headless)
else
  command -v javac >/dev/null && java_is_new || missing+=(default-jdk-headless)
  go_is_new || missing+=(golang-go)
  command -v node >/dev/null || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
  command -v chromium >/dev/null || missing+=(chromium)
  command -v chromedriver >/dev/null || missing+=(chromium-driver)
  command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
  command -v systemd-analyze >/dev/null || missing+=(systemd)
  command -v buildah >/dev/null || missing+=(buildah)
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  command -v ip >/dev/null || missing+=(iproute2)
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' \
    || missing+=(python3-dev)
  command -v groff >/dev/null || missing+=(groff)
fi
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}. Install them (on Debian: sudo apt-get install ${missing[*]}) and try again." >&2
  exit 1
fi
# RUNLEVEL: what is installed for the tests must not be started as a service.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"

java_is_new || { echo "this release has no Java 17: install one and put it into PATH" >&2; exit 1; }
[ "${1:-}" = demo ] || go_is_new || { echo "this release has no Go 1.21 (Debian 12: take golang-go from backports): install one" >&2; exit 1; }
