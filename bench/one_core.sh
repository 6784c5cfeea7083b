#!/bin/sh
# Runs the broker on one core, for experiments about overload: stafett-lab run overload --stafett bench/one_core.sh
exec taskset -c "${STAFETT_TEST_CORE:-0}" "${STAFETT_BIN:-$(dirname "$0")/../target/release/stafett}" "$@"
