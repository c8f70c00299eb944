#!/bin/bash
set -e
cd /app
cat knot.txt
grep dove bee.csv > fig.txt
