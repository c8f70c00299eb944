#!/bin/bash
set -e
cd /app
cat foam.txt
grep mango finch.csv > melon.csv
