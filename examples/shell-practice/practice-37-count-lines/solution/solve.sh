#!/bin/bash
set -e
cd /app
wc -l < crystal.csv > bucket.txt
