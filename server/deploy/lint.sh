#!/usr/bin/env bash
# Lints what is in this folder, with the linters of the virtual environment that is named: server/deploy/lint.sh .venv/bin
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")"

"$bin/hadolint" --failure-threshold info Dockerfile
rules='{document-start: disable, line-length: {max: 120}}'
"$bin/yamllint" --strict --config-data "{extends: default, rules: $rules}" kubernetes
"$bin/kubernetes-validate" --strict --quiet kubernetes/*.yaml

if ! command -v systemd-analyze >/dev/null; then
  echo "lint: the systemd unit NOT checked, there is no systemd-analyze" >&2
  exit
fi
# The program need not be installed here. A wrong key is told and forgiven, so what is told of the unit is what counts.
unit=forebay-server.service
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' "$unit" >"$folder/$unit"
told=$(systemd-analyze verify --man=no "$folder/$unit" 2>&1) || true
if grep "$unit" <<<"$told"; then exit 1; fi
# In tenths of systemd's "exposure": 0 is sealed, 100 wide open.
systemd-analyze security --offline=true --no-pager --threshold=15 "$unit" >"$folder/report" || { cat "$folder/report"; exit 1; }
