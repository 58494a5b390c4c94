#!/bin/sh
# guard.sh COMMAND [ARGUMENT...]: becomes COMMAND, and stops its process group when the parent is killed.
# Standard input is a pipe that the parent keeps open. On a line, the watcher exits. On end of file without a line,
# the parent was killed. The watcher is a member of the group, so the group's number can't be reused.
exec 3<&0
(
  trap '' TERM INT HUP
  if read -r _; then exit 0; fi
  kill -TERM 0
  tries=0
  while [ "$tries" -lt 75 ] && kill -0 "$$" 2>/dev/null; do
    tries=$((tries + 1))
    sleep 0.2
  done
  kill -KILL 0
) <&3 3<&- >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
