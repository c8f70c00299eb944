#!/bin/bash
# Reward 1 if /app holds exactly what expected.txt shows (every path, its kind, its contents),
# else 0. Bash alone, so that verifying costs one process. Blanks at the end of a file are
# forgiven; anything missing, changed or left over is not.
export LC_ALL=C
shopt -s globstar dotglob nullglob

show() {
  local path body
  for path in **; do
    if [[ -L $path ]]; then
      printf 'link %q\n' "$path"
    elif [[ -d $path ]]; then
      printf 'folder %q\n' "$path"
    elif [[ -f $path ]]; then
      IFS= read -r -d '' -n 4096 body < "$path"
      while [[ $body == *[[:space:]] ]]; do body=${body%?}; done
      printf 'file %q\n  %s\n' "$path" "${body//$'\n'/$'\n  '}"
    else
      printf 'other %q\n' "$path"
    fi
  done
}

cd /app && found=$(show) && expected=$(< /tests/expected.txt)
if [[ -n $expected && $found == "$expected" ]]; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
