#!/bin/sh
# hook.sh EVENT: hands what Claude Code says on stdin to `practicum plugin hook EVENT`.
# The guard sees every shell command; those without the word practicum pass here, at no cost.
program=${PRACTICUM_COMMAND:-practicum}
given=$(cat)
case "$1:$given" in
  guard:*practicum*) ;;
  guard:*) exit 0 ;;
esac
if ! command -v "$program" > /dev/null; then
  if [ "$1" = session-start ]; then
    echo "The practicum plugin is on, but there is no command $program:" \
      "install it, or name it in PRACTICUM_COMMAND, and start again."
  fi
  exit 0
fi
printf '%s' "$given" | "$program" plugin hook "$1"
