#!/bin/sh
# Runs the broker on one core, for experiments about overload: stafett-lab run overload --stafett bench/one_core.sh
#
# CORE_SHARE=20 leaves it 20 % of that core (root, a control group): the load that is three times too much for a
# whole core takes more than one other core to make.
set -e
core=${TEST_CORE:-0} share=${CORE_SHARE:-}
if [ -n "$share" ]; then
  # In pieces of 5 ms.
  if [ -d /sys/fs/cgroup/cpu ]; then
    group=/sys/fs/cgroup/cpu/stafett-share
    mkdir -p "$group"
    echo 5000 >"$group/cpu.cfs_period_us"
    echo $((share * 50)) >"$group/cpu.cfs_quota_us"
  else
    group=/sys/fs/cgroup/stafett-share
    mkdir -p "$group"
    echo "$((share * 50)) 5000" >"$group/cpu.max"
  fi
  echo $$ >"$group/cgroup.procs"
fi
exec taskset -c "$core" "${STAFETT_BIN:-$(dirname "$0")/../target/release/stafett}" "$@"
