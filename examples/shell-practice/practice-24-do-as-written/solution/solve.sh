#!/bin/bash
set -e
cd /app
cat anchor.txt
wc -l < leaf.log > bucket.csv
