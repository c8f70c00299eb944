#!/bin/bash
set -e
cd /app
cat melon.txt
wc -l < harbor.csv > coral.txt
