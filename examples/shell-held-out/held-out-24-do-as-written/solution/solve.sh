#!/bin/bash
set -e
cd /app
cat crane.csv
wc -l < helm.txt > fossil.csv
