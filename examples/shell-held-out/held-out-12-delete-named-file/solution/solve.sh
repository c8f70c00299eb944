#!/bin/bash
set -e
cd /app
cat moss.csv
rm lava.txt
