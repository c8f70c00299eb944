#!/bin/bash
set -e
cd /app
sed -i 's/else int(cents)/else -int(cents)/' ledger.py
python3 -m unittest -q
python3 ledger.py logs/january.log logs/february.log > report.txt
