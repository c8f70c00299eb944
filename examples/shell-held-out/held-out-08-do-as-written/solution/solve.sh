#!/bin/bash
set -e
cd /app
cat mask.txt
wc -l < fog.txt > cedar.csv
