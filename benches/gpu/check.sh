#!/usr/bin/env bash
# Runs everything that needs an NVIDIA GPU, step by step, and reports what it skipped. README.md describes the steps.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out="" only="" python="" total=480 archives=no install=(--install "$root/target/gpu-check-venv")

usage() {
  cat <<'TEXT'
usage: check.sh [--out DIR] [--only STEP,STEP] [--seconds N] [--python PATH] [--no-install] [--archives]

  --out DIR      folder of the results (benches/runs/<date>-<machine>/gpu)
  --only STEPS   run these steps only
  --seconds N    limit of all steps together (480)
  --python PATH  Python to use (.venv/bin/python if it exists, otherwise python3)
  --no-install   do not install missing Python packages
  --archives     put the files of each group of steps into one archive, GROUP.tar.gz

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
    --archives) archives=yes && shift && continue ;;
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
modules=$root/client/python/src:$root/server/tests/harness/src:$root/client/python/examples:$root/benches/peers
export PYTHONPATH=$modules:$root/benches/peers/contenders${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# In this order. A group's results are archived together.
groups=(machine copies streams speed cores sanitizers rehearsal)
declare -A members=(
  [machine]="packages environment parity"
  [copies]="landing registration memory graph"
  [streams]="server failures timeline"
  [speed]="fused loaders"
  [cores]="scale"
  [sanitizers]="racecheck memcheck"
  [rehearsal]="compile host"
)

steps=()
for group in "${groups[@]}"; do
  for step in ${members[$group]}; do
    steps+=("$step")
  done
done
for step in ${only//,/ }; do
  [[ " ${steps[*]} " == *" $step "* ]] || refuse "there is no step $step; the steps are ${steps[*]}"
done

out=${out:-$root/benches/runs/$("$python" "$here/machine_folder.py")/gpu}
mkdir -p "$out"
out=$(cd "$out" && pwd)
: >"$out/steps.tsv"

# Steps that need no GPU are not run where there is one, whose time may be short.
problem=$("$python" "$here/device.py")
is_wanted() {
  if [[ -n $only ]]; then
    [[ ",$only," == *",$1,"* ]]
  else
    [[ -n $problem || " ${members[rehearsal]} " != *" $1 "* ]]
  fi
}
left=()
for step in "${steps[@]}"; do
  if is_wanted "$step"; then
    left+=("$step")
  fi
done

# begin GROUP SECONDS: the steps that follow belong to it, and have at most this time together.
begin() {
  group=$1 group_end=$((SECONDS + $2))
}

# The group's results become one archive, which exists even if a later group is cut off.
end() {
  local step file files=()
  if [[ $archives == no ]]; then
    return
  fi
  for step in ${members[$group]}; do
    for file in "$out/$step".* "$out/$step"-*; do
      if [[ -s $file ]]; then
        files+=("$(basename "$file")")
      fi
    done
  done
  if ((${#files[@]})); then
    tar --directory "$out" --create --gzip --remove-files --file "$out/$group.tar.gz" "${files[@]}"
  fi
}

# run STEP SECONDS COMMAND…: exit code 0 of the command means that the step ran, 77 that it was skipped; the last line
# on stderr is the reason.
run() {
  local step=$1 limit=$2 began=$SECONDS status=ran reason="" code=0 rest=$((total - SECONDS))
  shift 2
  if ! is_wanted "$step"; then
    return
  fi
  left=("${left[@]:1}")
  if ((rest <= 0)); then
    printf '%s\tfailed\t0\tno time left: the limit of all steps is %s s\n' "$step" "$total" >>"$out/steps.tsv"
    return
  fi
  rest=$((rest < group_end - SECONDS ? rest : group_end - SECONDS))
  if ((rest <= 0)); then
    printf '%s\tfailed\t0\tno time left: its group took too long\n' "$step" >>"$out/steps.tsv"
    return
  fi
  limit=$((limit < rest ? limit : rest))
  timeout --kill-after=5 "$limit" "$@" >"$out/$step.jsonl" 2>"$out/$step.log" || code=$?
  case $code in
    0) ;;
    77) status=skipped ;;
    124 | 137) status=failed reason="took longer than $limit s" ;;
    *) status=failed ;;
  esac
  if [[ $code -ne 0 && -z $reason ]]; then
    reason=$(grep -v '^[[:space:]]*$' "$out/$step.log" | tail -n 1 | tr '\t' ' ' || true)
    reason=${reason:-exit code $code}
  fi
  printf '%s\t%s\t%s\t%s\n' "$step" "$status" "$((SECONDS - began))" "$reason" >>"$out/steps.tsv"
  echo "check.sh: $step $status${reason:+ ($reason)}, $((SECONDS - began)) s; at $SECONDS s, left: ${left[*]:-none}" >&2
}

SECONDS=0
begin machine 390
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
lost=$device::a_lost_device_is_left_to_the_cpu
tests=("$python" "$here/parity.py" --program "$parity")
# The programs of the other cases are so large that instrumenting them takes minutes.
checked=(--cases dense,wide,one_hot,categories)
streaming=("$python" "$here/requires.py" torch,pyarrow,numpy)

run environment 60 "$python" "$here/environment.py" --root "$root"
run parity 90 "${tests[@]}" --on-device "${on_device[@]}" "$lost"
end
begin copies 170
run landing 40 "${streaming[@]}" "$here/landing.py"
run registration 30 "${streaming[@]}" "$here/registration.py"
run memory 60 "${streaming[@]}" "$here/memory.py"
run graph 60 "${streaming[@]}" "$here/graph.py"
end
begin streams 230
run server 90 "${streaming[@]}" "$here/server_stream.py"
run failures 90 "${streaming[@]}" "$here/failures.py"
run timeline 120 "${streaming[@]}" "$here/timeline.py" --traces "$out"
end
begin speed 100
run fused 40 "$python" "$here/fused.py" --program "$kernel"
run loaders 60 "${streaming[@]}" "$here/loaders.py"
end
begin cores 170
run scale 170 "${streaming[@]}" "$here/scale.py"
end
begin sanitizers 170
run racecheck 60 "${tests[@]}" --on-device --sanitizer racecheck "$overlapping"
run memcheck 120 "${tests[@]}" --on-device --sanitizer memcheck "${checked[@]}" "${on_device[@]}"
end
begin rehearsal 420
run compile 300 "${tests[@]}" "${compiled[@]}"
run host 300 "${tests[@]}" "${simulated[@]}"
end

"$python" "$here/summary.py" "$out"
