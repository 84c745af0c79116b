#!/usr/bin/env bash
# Is this commit slower than BASE? Builds both, runs them in turn, and asks `takt gate`; gate.xml is its answer as JUnit.
#
#   sudo --preserve-env=PATH,SETUP,CMAKE_PREFIX_PATH ci/gate.sh BASE     # BASE: a commit or branch, such as origin/main
#
# SETUP is a file to source first, for what sudo takes away: /opt/ros/DISTRO/setup.bash, or .venv/bin/activate with its whole path.
# Takes root (kernel events, real-time policies) and a machine that does nothing else meanwhile. RUNS of each side (20) of RUN_SECONDS (5)
# take seven minutes; the output says which rise they would have found.
# Exit status: 0 not slower, or too little data to tell; 1 slower; 2 not judged.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:?usage: ci/gate.sh BASE}
runs=${RUNS:-20} seconds=${RUN_SECONDS:-5}
if [ -n "${SETUP-}" ]; then
  set +u # Such files use variables that are not set.
  # shellcheck disable=SC1090
  . "$SETUP"
  set -u
fi

work=$(mktemp -d)
trap 'git worktree remove --force "$work/base" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"
if ! [ -e "$work/base/program.toml" ]; then
  echo "gate: $base has no program.toml, so there is nothing to compare with"
  exit 0
fi

build() (
  cd "$1"
  @BUILD@
)
build "$work/base"
build .

rm -rf takt-runs/gate
for _ in $(seq "$runs"); do
  for side in base new; do
    folder=.
    [ $side = new ] || folder=$work/base
    takt run "$folder/program.toml" --seconds "$seconds" --view none --runs "takt-runs/gate/$side" >"$work/log" 2>&1 || {
      cat "$work/log" >&2
      exit 2
    }
  done
done

status=0
takt gate --baseline takt-runs/gate/base takt-runs/gate/new --junit gate.xml || status=$?
# 4: too little data to tell, which is no fault of the change.
[ $status -ne 4 ] || status=0
exit $status
