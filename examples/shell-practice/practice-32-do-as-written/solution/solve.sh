#!/bin/bash
set -e
cd /app
cat grain.txt
wc -l < engine.csv > bone.log
