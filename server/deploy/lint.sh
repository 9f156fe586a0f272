#!/usr/bin/env bash
# Lints this folder with the tools of a virtual environment: server/deploy/lint.sh .venv/bin
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")"

"$bin/hadolint" --failure-threshold info Dockerfile
rules='{document-start: disable, line-length: {max: 120}}'
"$bin/yamllint" --strict --config-data "{extends: default, rules: $rules}" kubernetes
"$bin/kubernetes-validate" --strict --quiet kubernetes/*.yaml kubernetes/*/*.yaml

if ! command -v systemd-analyze >/dev/null; then
  echo "lint: systemd unit NOT checked: systemd-analyze is missing" >&2
  exit
fi
# The program need not be installed. systemd-analyze reports unknown keys but succeeds, so search its output.
unit=forebay-server.service
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' "$unit" >"$folder/$unit"
report=$(systemd-analyze verify --man=no "$folder/$unit" 2>&1) || true
if grep "$unit" <<<"$report"; then exit 1; fi
# The threshold is in tenths of systemd's exposure level: 0 is the safest, 100 the least safe.
systemd-analyze security --offline=true --no-pager --threshold=15 "$unit" >"$folder/report" || { cat "$folder/report"; exit 1; }
