#!/bin/bash
set -e
cd /app
cat horse.txt
grep iron camp.log > frost.csv
