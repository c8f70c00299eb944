#!/bin/bash
set -e
cd /app
grep echo comet.csv > gull.log
