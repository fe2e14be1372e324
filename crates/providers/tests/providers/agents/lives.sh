#!/bin/sh
# An agent that does nothing except record how it was started.
dir=$5
echo "$@" >"$dir/arguments"
tr '\0' '\n' </proc/self/environ >"$dir/environment"
ls /proc/self/fd >"$dir/descriptors"
exec sleep 1000
