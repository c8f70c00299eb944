#!/bin/bash
set -e
cd /app
wc -l < goat.csv > horn.txt
