#!/bin/sh
# Exits when asked to, but leaves its children running: one in its session, one in a session of its own.
sleep 1000 &
setsid sleep 1000 &
trap 'exit 0' TERM
echo up
while :; do sleep 0.05; done
