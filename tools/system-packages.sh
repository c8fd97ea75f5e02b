#!/usr/bin/env bash
# Installs, on Debian and as root, the programs that the tests call and that pip cannot bring.
set -euo pipefail

missing=()
java_major() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }
if ! command -v javac >/dev/null || [ "$(java_major)" -lt 17 ]; then missing+=(default-jdk-headless); fi
command -v mvn >/dev/null || missing+=(maven)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}. Install them (on Debian: sudo apt-get install ${missing[*]}) and run this again." >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
