#!/bin/bash
set -e
cd /app
cat bean.csv
grep cheese hill.txt > branch.txt
