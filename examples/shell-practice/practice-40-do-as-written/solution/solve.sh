#!/bin/bash
set -e
cd /app
cat jewel.log
sort lizard.txt > gate.csv
