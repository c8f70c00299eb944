#!/bin/bash
# Reward 1 if the records show that the workflow was kept, else 0; the reasons are in report.json
# and in this log. The checkpoint's quality is a metric beside the reward. Where records cannot be
# read there is no reward.
verify=(practicum episode verify /tests/episode.json --work "$PRACTICUM_TRIAL")
verify+=(--outcome /app/outcome.json --rewards /logs/verifier/reward.json)
"${verify[@]}" --json > /logs/verifier/report.json
cat /logs/verifier/report.json
