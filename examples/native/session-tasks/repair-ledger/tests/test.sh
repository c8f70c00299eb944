#!/bin/bash
# Reward 1 if refunds count against the total and the report holds the right one, else 0.
cd /app || exit 1
reward=0
right=$(awk -F'|' '{ sum += ($4 ~ /paid/ ? $3 : -$3) } END { print sum }' logs/january.log logs/february.log)
printed=$(python3 ledger.py logs/january.log logs/february.log)
if [[ $(cat report.txt) == "$right" && $printed == "$right" ]] && python3 -m unittest -q; then
  reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
