#!/bin/bash
set -e
cd /app
cat hedge.log
grep dock fog.txt > globe.txt
