#!/bin/bash
set -e
cd /app
cat coral.txt
cp bush.csv mask.csv
