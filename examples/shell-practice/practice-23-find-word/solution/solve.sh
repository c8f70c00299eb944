#!/bin/bash
set -e
cd /app
grep bowl goat.csv > chain.txt
