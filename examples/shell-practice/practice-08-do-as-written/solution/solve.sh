#!/bin/bash
set -e
cd /app
cat chain.log
cp crystal.log feather.csv
