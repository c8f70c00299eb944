#!/bin/bash
set -e
cd /app
cat bone.txt
wc -l < lily.log > beach.log
