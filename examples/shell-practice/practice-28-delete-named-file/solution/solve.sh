#!/bin/bash
set -e
cd /app
cat bone.txt
rm engine.csv
