#!/bin/sh
# Runs the broker on one core, for experiments about overload: stafett-lab run overload --stafett bench/one_core.sh
#
# CORE_SHARE=20 leaves it 20 % of that core (root, a control group): the load that is three times too much for a
# whole core takes more than one other core to make.
set -e
core=${TEST_CORE:-0} share=${CORE_SHARE:-}
if [ -n "$share" ]; then
  # In short pieces, of which the kernel wants 1 ms at least.
  period=5000
  [ "$share" -ge 20 ] || period=$(((100000 + share - 1) / share))
  quota=$((period * share / 100))
  if [ -d /sys/fs/cgroup/cpu ]; then
    group=/sys/fs/cgroup/cpu/stafett-share
    mkdir -p "$group"
    echo $period >"$group/cpu.cfs_period_us"
    echo $quota >"$group/cpu.cfs_quota_us"
  else
    group=/sys/fs/cgroup/stafett-share
    mkdir -p "$group"
    echo "$quota $period" >"$group/cpu.max"
  fi
  echo $$ >"$group/cgroup.procs"
fi
exec taskset -c "$core" "${STAFETT_BIN:-$(dirname "$0")/../target/release/stafett}" "$@"
