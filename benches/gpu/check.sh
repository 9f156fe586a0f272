#!/usr/bin/env bash
# Runs everything that needs an NVIDIA GPU, step by step, and reports what it skipped. README.md describes the steps.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out="" only="" python="" total=600 install=(--install "$root/target/gpu-check-venv")

usage() {
  cat <<'TEXT'
usage: check.sh [--out DIR] [--only STEP,STEP] [--seconds N] [--python PATH] [--no-install]

  --out DIR      folder of the results (benches/runs/<date>-<machine>/gpu)
  --only STEPS   run these steps only
  --seconds N    limit of all steps together (600)
  --python PATH  Python to use (.venv/bin/python if it exists, otherwise python3)
  --no-install   do not install missing Python packages

exit code: 0 if no step failed, 1 if one failed, 2 for a wrong argument
TEXT
}

refuse() {
  echo "check.sh: $1" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --no-install) install=() && shift && continue ;;
    --out | --only | --seconds | --python) [[ $# -ge 2 ]] || refuse "$1 needs a value" ;;
    *) refuse "unknown argument $1; see --help" ;;
  esac
  case $1 in
    --out) out=$2 ;;
    --only) only=$2 ;;
    --seconds) total=$2 ;;
    --python) python=$2 ;;
  esac
  shift 2
done
[[ $total =~ ^[1-9][0-9]*$ ]] || refuse "--seconds must be a positive number, not $total"

if [[ -z $python ]]; then
  python=$root/.venv/bin/python
  [[ -x $python ]] || python=python3
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  refuse "$python is not Python 3.10 or newer; see --python"

# The first of these paths that exists; the first one if none does.
first() {
  local path
  for path in "$@"; do
    if [[ -e $path ]]; then
      echo "$path"
      return
    fi
  done
  echo "$1"
}

built=$root/target/gpu-kit/forebay-gpu-kit/bin
program() {
  first "$built/$1" "$root/bin/$1" "$root/target/release/$1"
}
export FOREBAY_SERVER_BIN=${FOREBAY_SERVER_BIN:-$(program forebay-server)}
parity=${FOREBAY_PARITY_BIN:-$(program kernel-parity)}
kernel=${FOREBAY_GPU_KERNEL_BIN:-$(program gpu-kernel)}
export PYTHONPATH=$root/client/python/src:$root/server/tests/harness/src:$root/client/python/examples
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

steps=(packages environment compile host parity memcheck racecheck fused landing registration server timeline)
for step in ${only//,/ }; do
  [[ " ${steps[*]} " == *" $step "* ]] || refuse "there is no step $step; the steps are ${steps[*]}"
done

out=${out:-$root/benches/runs/$("$python" "$here/machine_folder.py")/gpu}
mkdir -p "$out"
out=$(cd "$out" && pwd)
: >"$out/steps.tsv"

# run STEP SECONDS COMMAND…: exit code 0 of the command means that the step ran, 77 that it was skipped; the last line
# on stderr is the reason.
run() {
  local step=$1 limit=$2 left=$((total - SECONDS)) began=$SECONDS status=ran reason="" code=0
  shift 2
  if [[ -n $only && ",$only," != *",$step,"* ]]; then
    return
  fi
  echo "check.sh: $step" >&2
  if ((left <= 0)); then
    printf '%s\tfailed\t0\tno time left: the limit of all steps is %s s\n' "$step" "$total" >>"$out/steps.tsv"
    return
  fi
  limit=$((limit < left ? limit : left))
  timeout --kill-after=5 "$limit" "$@" >"$out/$step.jsonl" 2>"$out/$step.log" || code=$?
  case $code in
    0) ;;
    77) status=skipped ;;
    124) status=failed reason="took longer than $limit s" ;;
    *) status=failed ;;
  esac
  if [[ $code -ne 0 && -z $reason ]]; then
    reason=$(grep -v '^[[:space:]]*$' "$out/$step.log" | tail -n 1 | tr '\t' ' ' || true)
    reason=${reason:-exit code $code}
  fi
  printf '%s\t%s\t%s\t%s\n' "$step" "$status" "$((SECONDS - began))" "$reason" >>"$out/steps.tsv"
}

SECONDS=0
run packages 240 "$python" "$here/packages.py" --requirements "$here/requirements.txt" "${install[@]}"
if [[ -x $root/target/gpu-check-venv/bin/python && ! -x $root/.venv/bin/python ]]; then
  python=$root/target/gpu-check-venv/bin/python
fi
nvrtc=$("$python" "$here/device.py" --nvrtc)
if [[ -n $nvrtc ]]; then
  export FOREBAY_NVRTC=$nvrtc
fi

sources=cuda::tests::sources device=cuda::tests::device host=cuda::tests::parity
compiled=("$sources::nvrtc_compiles_every_source" "$sources::the_compilers_log_is_reported")
simulated=("$host::the_host_matches_the_cpu" "$host::runs_continue_after_earlier_runs")
simulated+=("$host::the_first_fault_is_the_cpus")
overlapping=$device::runs_of_one_batch_overlap
on_device=("$device::a_device_matches_the_cpu" "$overlapping" "$device::a_device_reports_the_errors_of_the_cpu")
tests=("$python" "$here/parity.py" --program "$parity")
streaming=("$python" "$here/requires.py" torch,pyarrow,numpy)

run environment 120 "$python" "$here/environment.py" --root "$root"
run compile 300 "${tests[@]}" "${compiled[@]}"
run host 300 "${tests[@]}" "${simulated[@]}"
run parity 120 "${tests[@]}" --on-device "${on_device[@]}"
run memcheck 150 "${tests[@]}" --on-device --sanitizer memcheck "${on_device[@]}"
run racecheck 90 "${tests[@]}" --on-device --sanitizer racecheck "$overlapping"
run fused 120 "$python" "$here/fused.py" --program "$kernel"
run landing 120 "$python" "$here/landing.py"
run registration 120 "${streaming[@]}" "$here/registration.py"
run server 180 "${streaming[@]}" "$here/server_stream.py"
run timeline 300 "${streaming[@]}" "$here/timeline.py" --traces "$out"

"$python" "$here/report.py" "$out"
