#!/usr/bin/env bash
# Kafka's own tools against Stafett and Apache Kafka in turn: see kafka.py and README.md.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/kafka.py" "$@"
