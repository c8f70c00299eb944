#!/bin/sh
# hook.sh EVENT: hands what Claude Code says on stdin to `practicum plugin hook EVENT`.
# The guard sees every shell command; those that do not name the program pass here, at no cost.
# The end of a session is answered here: Claude Code waits for it a second and a half at most.
given=$(cat)
if [ "$1" = session-end ]; then
  left="${CLAUDE_PLUGIN_DATA:-}/unwritten-${CLAUDE_CODE_SESSION_ID:-}"
  [ -f "$left" ] || exit 0
  cat "$left" >&2
  rm -f "$left"
  exit 1
fi
program=${PRACTICUM_COMMAND:-practicum}
case "$1:$given" in
  guard:*practicum* | guard:*"-m tools"*) ;;
  guard:*) exit 0 ;;
esac
if ! command -v "$program" > /dev/null; then
  if [ "$1" = session-start ]; then
    echo "The practicum plugin is on, but there is no command $program:" \
      "install it, or name it in PRACTICUM_COMMAND, and start again."
  fi
  exit 0
fi
if printf '%s' "$given" | "$program" plugin hook "$1"; then
  exit 0
fi
# Claude Code takes the status 2 for a refusal. What failed refuses nothing, and a guard asks.
[ "$1" = guard ] || exit 1
echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask",' \
  '"permissionDecisionReason": "Practicum: the guard failed, so nobody knows what this does."}}'
