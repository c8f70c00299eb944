#!/bin/bash
set -e
cd /app
cat flower.log
rm frog.csv
