#!/bin/bash
set -e
cd /app
wc -l < broom.csv > bread.csv
