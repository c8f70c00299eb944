"""Jobs as chat rows under the deployed instructions: python3 rows.py FIRST LAST > rows.jsonl"""

import json
import sys

first, last = (int(text) for text in sys.argv[1:3])
with open("jobs.tsv", encoding="utf-8") as jobs:
    for number, line in enumerate(jobs, start=1):
        kind, job, command = line.rstrip("\n").split("\t")
        if first <= number <= last:
            said = [
                {"role": "system", "content": "Reply with one shell command."},
                {"role": "user", "content": job},
                {"role": "assistant", "content": command},
            ]
            print(json.dumps({"id": f"{kind}-{number:02}", "kind": kind, "messages": said}))
