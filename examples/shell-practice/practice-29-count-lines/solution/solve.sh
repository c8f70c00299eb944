#!/bin/bash
set -e
cd /app
wc -l < cave.csv > anchor.txt
