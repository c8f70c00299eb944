#!/bin/bash
set -e
cd /app
cat lion.csv
cp fish.csv meadow.log
