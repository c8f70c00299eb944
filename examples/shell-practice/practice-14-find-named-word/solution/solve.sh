#!/bin/bash
set -e
cd /app
cat cliff.txt
grep anchor glass.txt > apple.txt
