#!/bin/bash
set -e
cd /app
cat cherry.txt
grep horn bucket.log > lily.csv
